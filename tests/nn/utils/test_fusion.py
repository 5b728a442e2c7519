"""Normalisation taken into the layer before it; modules without initial values."""

import numpy as np
import pytest

import disttrain as dt
from disttrain import nn
from disttrain.nn import utils


def normalised(layer, bn):
    """Both after some training, in evaluation mode."""
    dt.manual_seed(0)
    for t in (*bn.parameters(), *layer.parameters()):
        nn.init.normal_(t)
    bn.running_mean.normal_()
    bn.running_var.uniform_(0.5, 2.0)
    return layer.eval(), bn.eval()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_convolutions(bias, affine):
    x = dt.randn(2, 3, 6, 6)
    for kind, transpose in ((nn.Conv2d, False), (nn.ConvTranspose2d, True)):
        conv, bn = normalised(kind(3, 4, 3, bias=bias), nn.BatchNorm2d(4, affine=affine))
        fused = utils.fuse_conv_bn_eval(conv, bn, transpose)
        want = bn(conv(x)).detach().numpy()
        np.testing.assert_allclose(fused(x).detach().numpy(), want, rtol=1e-4, atol=1e-5)
        assert fused.bias.requires_grad and fused is not conv and (conv.bias is not None) == bias


@pytest.mark.parametrize("bias", [True, False])
def test_linear_maps(bias):
    linear, bn = normalised(nn.Linear(3, 4, bias=bias), nn.BatchNorm1d(4))
    fused, x = utils.fuse_linear_bn_eval(linear, bn), dt.randn(5, 3)
    want = bn(linear(x)).detach().numpy()
    np.testing.assert_allclose(fused(x).detach().numpy(), want, rtol=1e-4, atol=1e-5)


def test_what_cannot_be_fused():
    with pytest.raises(AssertionError, match="only for eval"):
        utils.fuse_conv_bn_eval(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    with pytest.raises(AssertionError, match=r"linear\.out_features=4"):
        utils.fuse_linear_bn_eval(nn.Linear(3, 4).eval(), nn.BatchNorm1d(3).eval())
    bn = nn.BatchNorm1d(4, track_running_stats=False).eval()
    with pytest.raises(AssertionError, match="must not be None"):
        utils.fuse_linear_bn_eval(nn.Linear(3, 4).eval(), bn)


def test_modules_without_initial_values():
    state = dt.get_rng_state()
    m = utils.skip_init(nn.Linear, 5, 1, bias=False)
    assert m.weight.shape == (1, 5) and m.bias is None and not m.weight.is_meta
    assert (dt.get_rng_state() == state).all()
    with pytest.raises(RuntimeError, match="must support a 'device'"):
        utils.skip_init(nn.ReLU)
    with pytest.raises(RuntimeError, match="Expected a Module"):
        utils.skip_init(3)
