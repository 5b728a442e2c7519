"""Modules that learn their sizes from what they are given."""

import numpy as np
import pytest

from disttrain import core, nn, optim
from disttrain.core.types import dtypes
from disttrain.errors import ModuleError


def randn(*shape, seed=0):
    return core.wrap(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def test_lazy_modules_learn_their_sizes():
    net = nn.Sequential(
        nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(5)
    )
    assert isinstance(net[4].weight, nn.UninitializedParameter)
    with pytest.raises(ModuleError, match="run one batch"):
        net[4].weight.shape
    kept = net[4].weight
    out = net.double()(randn(2, 3, 6, 6).double())
    assert out.shape == (2, 5) and net[4].weight is kept
    assert type(net[0]) is nn.Conv2d and type(net[1]) is nn.BatchNorm2d
    assert type(net[4]) is nn.Linear and type(kept) is nn.Parameter
    assert kept.shape == (5, 64) and kept.dtype is dtypes.float64
    assert net[0].in_channels == 3 and net[1].num_features == 4 and net[4].in_features == 64
    out.sum().backward()
    assert kept.grad is not None
    assert np.abs(kept.detach().numpy()).max() <= 1 / 8


LAZY = [getattr(nn, n) for n in nn.__all__ if n.startswith("Lazy") and "Norm" not in n]

LAZY_NORMS = [getattr(nn, n) for n in nn.__all__ if n.startswith("Lazy") and "Norm" in n]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", LAZY, ids=lambda k: k.__name__)
def test_lazy_layers_with_and_without_bias(kind, bias):
    dims = int(kind.__name__[-2]) if "Conv" in kind.__name__ else 0
    args = (4, 3) if dims else (4,)
    net, twin = kind(*args, bias=bias), kind(*args, bias=bias)
    assert list(net.state_dict()) == ["weight", "bias"][: 1 + bias]
    x = randn(2, 3, *[6] * dims)
    out = net(x)
    assert type(net) is kind.cls_to_become and (net.bias is not None) == bias
    twin.load_state_dict(net.state_dict())
    np.testing.assert_array_equal(twin(x).detach().numpy(), out.detach().numpy())


@pytest.mark.parametrize("kind", LAZY_NORMS, ids=lambda k: k.__name__)
def test_lazy_norms(kind):
    net = kind(affine=True, track_running_stats=True)
    x = randn(2, 3, *[4] * int(kind.__name__[-2]))
    assert net(x).shape == x.shape and net.num_features == 3
    assert type(net) is kind.cls_to_become and net.running_mean.shape == (3,)


def test_lazy_modules_of_ones_own():
    class Own(nn.modules.lazy.LazyMixin, nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.UninitializedParameter()
            self.times = 0

        def initialize_parameters(self, x):
            self.times += 1
            self.scale.materialize(x.shape[-1])
            nn.init.ones_(self.scale)

        def forward(self, x):
            return x * self.scale

    net = Own()
    with pytest.raises(RuntimeError, match="share memory on an uninitialized"):
        net.share_memory()
    with pytest.raises(ValueError, match="uninitialized parameter"):
        optim.Adagrad(net.parameters())
    opt = optim.SGD(net.parameters(), lr=0.5)
    x = randn(2, 3)
    net(x).sum().backward()
    net(x)
    opt.step()
    assert type(net) is Own and net.times == 1 and net.scale.shape == (3,)
    with pytest.raises(RuntimeError, match="shape of an uninitialized parameter"):
        net.load_state_dict(Own().state_dict())
    np.testing.assert_allclose(net.scale.detach().numpy(), 1 - 0.5 * x.numpy().sum(0), rtol=1e-6)


def test_lazy_modules_take_their_sizes_from_a_state_dict():
    done = nn.Linear(3, 2)
    lazy = nn.LazyLinear(2)
    lazy.load_state_dict(done.state_dict())
    x = randn(4, 3)
    np.testing.assert_array_equal(lazy(x).detach().numpy(), done(x).detach().numpy())
    assert type(lazy) is nn.Linear and lazy.in_features == 3
