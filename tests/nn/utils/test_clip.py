"""Clipping of gradients, parameters as vectors."""

import contextlib
import math

import numpy as np
import pytest

from disttrain import core, nn, profiler
from disttrain.errors import AutogradError, ConfigError

utils = nn.utils


def params(*grads, kind=np.float32):
    out = []
    for g in grads:
        p = nn.Parameter(core.wrap(np.zeros(np.shape(g), kind)))
        p.grad = core.wrap(np.array(g, kind))
        out.append(p)
    return out


def test_clip_by_norm_scales_all_alike():
    ps = params([3.0, 0.0], [[0.0], [4.0]])
    ps.append(nn.Parameter(core.wrap(np.zeros(2, np.float32))))  # without a gradient
    total = utils.clip_grad_norm_(ps, 1.0)
    assert total.item() == pytest.approx(5.0)
    assert ps[0].grad.tolist() == pytest.approx([0.6, 0.0])
    assert ps[1].grad.numpy().ravel().tolist() == pytest.approx([0.0, 0.8])
    assert ps[2].grad is None


def test_small_gradients_stay_bitwise():
    ps = params([0.3, 0.4])
    assert utils.clip_grad_norm_(iter(ps), max_norm=1.0).item() == pytest.approx(0.5)
    assert ps[0].grad.numpy().tolist() == np.array([0.3, 0.4], np.float32).tolist()


@pytest.mark.parametrize(
    ("p", "expected"), [(1, 7.0), (2, 5.0), (3, 91 ** (1 / 3)), (math.inf, 4.0), ("inf", 4.0)]
)
def test_norm_types(p, expected):
    total = utils.clip_grad_norm_(params([3.0], [-4.0]), 100.0, norm_type=p)
    assert total.item() == pytest.approx(expected)


@pytest.mark.parametrize("seen", [False, True])
def test_order_0_counts_the_tensors_that_have_elements_which_are_not_0(seen):
    """As PyTorch has it: the norm of the norms, of which each counts elements."""
    ps = params([3.0, 0.0, -1.0], [0.0], [math.nan])
    with profiler.profile() if seen else contextlib.nullcontext():
        assert utils.clip_grad_norm_(ps, 1.0, norm_type=0).item() == 2.0
    assert ps[0].grad.tolist() == pytest.approx([1.5, 0.0, -0.5])
    assert utils.get_total_norm([core.wrap(np.zeros(2))], 0).item() == 0.0


def test_huge_and_narrow_gradients():
    big = params([1e30, 1e30])
    assert utils.clip_grad_norm_(big, 1.0).item() == pytest.approx(math.sqrt(2) * 1e30)
    assert big[0].grad.tolist() == pytest.approx([math.sqrt(0.5)] * 2)
    half = params([300.0] * 4, kind=np.float16)
    assert utils.clip_grad_norm_(half, 1.0).item() == pytest.approx(600.0)
    assert half[0].grad.tolist() == pytest.approx([0.5] * 4, rel=1e-3)


def test_not_finite_gradients():
    ps = params([math.nan], [1.0])
    assert math.isnan(utils.clip_grad_norm_(ps, 1.0).item())
    with pytest.raises(AutogradError, match="is nan, so it cannot be clipped"):
        utils.clip_grad_norm_(params([math.nan]), 1.0, error_if_nonfinite=True)


def test_nothing_to_clip():
    assert utils.clip_grad_norm_([], 1.0).item() == 0.0
    assert utils.get_total_norm([]).item() == 0.0


def test_one_tensor_and_separate_steps():
    (p,) = params([6.0, 8.0])
    total = utils.get_total_norm([p.grad])
    utils.clip_grads_with_norm_(p, 5.0, total)
    assert p.grad.tolist() == pytest.approx([3.0, 4.0])


def test_clip_by_value():
    ps = params([3.0, -0.2, -9.0])
    utils.clip_grad_value_(ps, 1.0)
    assert ps[0].grad.tolist() == pytest.approx([1.0, -0.2, -1.0])


def test_vectors():
    ps = params([1.0, 2.0], [[3.0], [4.0]])
    for i, p in enumerate(ps):
        p.data.fill_(float(i))
    vec = utils.parameters_to_vector(ps)
    assert vec.tolist() == [0.0, 0.0, 1.0, 1.0]
    utils.vector_to_parameters((vec + 5).detach(), ps)
    assert ps[1].tolist() == [[6.0], [6.0]] and ps[1].requires_grad
    with pytest.raises(ConfigError, match="needed a vector of 4 elements"):
        utils.vector_to_parameters(core.wrap(np.zeros(3)), ps)
