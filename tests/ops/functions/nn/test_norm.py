"""Normalisations against formulas written out, running statistics, errors, gradients."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.core import backward, wrap
from disttrain.errors import ConfigError, ShapeError
from disttrain.ops.functions.nn.norm import (
    batch_norm,
    group_norm,
    instance_norm,
    layer_norm,
    normalize,
    rms_norm,
)
from support.numeric import check_gradients

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 4, 5)) * 2 + 1
W4, B4 = RNG.normal(size=4), RNG.normal(size=4)
W5, B5 = RNG.normal(size=5), RNG.normal(size=5)


def _t(a):
    return None if a is None else wrap(np.array(a))


def _standard(x, dims, eps=1e-5):
    centred = x - x.mean(dims, keepdims=True)
    return centred / np.sqrt((centred**2).mean(dims, keepdims=True) + eps)


@pytest.mark.parametrize("affine", ["both", "weight", "none"])
def test_layer_norm(affine):
    w = None if affine == "none" else W5
    b = B5 if affine == "both" else None
    want = _standard(X, -1) * (1 if w is None else w) + (0 if b is None else b)
    got = layer_norm(_t(X), (5,), _t(w), _t(b))
    np.testing.assert_allclose(got.array, want, rtol=1e-10)
    given = [a for a in (X, w, b) if a is not None]
    check_gradients(lambda x, w=None, b=None: layer_norm(x, 5, w, b) ** 2, *given)


def test_layer_norm_over_two_dimensions_with_a_bias_only():
    b = RNG.normal(size=(4, 5))
    got = layer_norm(_t(X), (4, 5), None, _t(b))
    np.testing.assert_allclose(got.array, _standard(X, (1, 2)) + b, rtol=1e-10)
    check_gradients(lambda x, b: layer_norm(x, (4, 5), None, b) ** 2, X, b)


@pytest.mark.parametrize("weighted", [False, True])
def test_rms_norm(weighted):
    w = W5 if weighted else None
    want = X / np.sqrt((X**2).mean(-1, keepdims=True) + 1e-5) * (1 if w is None else w)
    np.testing.assert_allclose(rms_norm(_t(X), (5,), _t(w), 1e-5).array, want, rtol=1e-10)
    given = [X, w] if weighted else [X]
    check_gradients(lambda x, w=None: rms_norm(x, 5, w, 1e-5) ** 2, *given)


@pytest.mark.parametrize("shape", [(6, 4), (3, 4, 5), (2, 4, 3, 2)])
@pytest.mark.parametrize("affine", [False, True])
def test_batch_norm_training(shape, affine):
    x = RNG.normal(size=shape) + 1
    dims = (0, *range(2, len(shape)))
    each = (1, -1) + (1,) * (len(shape) - 2)
    w, b = (W4, B4) if affine else (None, None)
    want = _standard(x, dims)
    if affine:
        want = want * w.reshape(each) + b.reshape(each)
    mean, var = _t(np.zeros(4)), _t(np.ones(4))
    got = batch_norm(_t(x), mean, var, _t(w), _t(b), True, 0.3)
    np.testing.assert_allclose(got.array, want, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(mean.array, 0.3 * x.mean(dims), rtol=1e-5)
    np.testing.assert_allclose(var.array, 0.7 + 0.3 * x.var(dims, ddof=1), rtol=1e-5)
    given = [x, w, b] if affine else [x]

    def fn(x, w=None, b=None):
        return batch_norm(x, None, None, w, b, True) ** 2

    check_gradients(fn, *given)


def test_batch_norm_evaluation():
    mean, var = RNG.normal(size=4), RNG.uniform(0.5, 2, 4)
    each = (1, -1, 1)
    want = (X - mean.reshape(each)) / np.sqrt(var.reshape(each) + 1e-5)
    got = batch_norm(_t(X), _t(mean), _t(var))
    np.testing.assert_allclose(got.array, want, rtol=1e-10)
    want = want * W4.reshape(each) + B4.reshape(each)
    got = batch_norm(_t(X), _t(mean), _t(var), _t(W4), _t(B4))
    np.testing.assert_allclose(got.array, want, rtol=1e-10)

    def fn(x, w, b):
        return batch_norm(x, _t(mean), _t(var), w, b) ** 2

    check_gradients(fn, X, W4, B4)


def test_running_statistics_change_in_place_and_count_as_a_write():
    mean, var = wrap(np.zeros(4)), wrap(np.ones(4))
    x = _t(X).requires_grad_()
    y = (x * mean.reshape(1, 4, 1)).sum()
    batch_norm(x, mean, var, training=True)
    assert mean.array.any() and not mean.requires_grad
    with pytest.raises(RuntimeError, match="in-place"):
        backward(y)


@pytest.mark.parametrize("kind", ["f2", "f4"])
def test_narrow_types(kind):
    x = X.astype(kind)
    tol = 0.01 if kind == "f2" else 1e-5
    each = (1, -1, 1)
    for got, want in (
        (layer_norm(_t(x), 5), _standard(X, -1)),
        (batch_norm(_t(x), None, None, _t(W4.astype(kind)), None, True),
         _standard(X, (0, 2)) * W4.reshape(each)),
        (group_norm(_t(x), 2), _standard(X.reshape(3, 2, -1), -1).reshape(X.shape)),
    ):  # fmt: skip
        assert got.array.dtype == x.dtype
        np.testing.assert_allclose(got.array, want, atol=tol)
    x = _t(x).requires_grad_()
    batch_norm(x, None, None, training=True).sum().backward()
    assert x.grad.array.dtype == kind


def test_group_norm():
    want = _standard(X.reshape(3, 2, -1), -1).reshape(X.shape)
    want = want * W4.reshape(1, -1, 1) + B4.reshape(1, -1, 1)
    got = group_norm(_t(X), 2, _t(W4), _t(B4))
    np.testing.assert_allclose(got.array, want, rtol=1e-9)
    check_gradients(lambda x, w, b: group_norm(x, 2, w, b) ** 2, X, W4, B4)


def test_instance_norm():
    mean, var = wrap(np.zeros(4)), wrap(np.ones(4))
    got = instance_norm(_t(X), mean, var, _t(W4), _t(B4), momentum=0.5)
    want = _standard(X, -1) * W4.reshape(1, -1, 1) + B4.reshape(1, -1, 1)
    np.testing.assert_allclose(got.array, want, rtol=1e-9)
    np.testing.assert_allclose(mean.array, 0.5 * X.mean((0, 2)))
    np.testing.assert_allclose(var.array, 0.5 + 0.5 * X.var(2, ddof=1).mean(0))
    check_gradients(lambda x: instance_norm(x) ** 2, X)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, float("inf")])
def test_normalize(p):
    want = X / np.linalg.norm(X, p, axis=1, keepdims=True)
    np.testing.assert_allclose(normalize(_t(X), p).array, want)
    check_gradients(lambda x: normalize(x, p), X, second=p == 2)


def test_errors():
    with pytest.raises(ShapeError, match="last dimensions"):
        layer_norm(_t(X), (4,))
    with pytest.raises(ShapeError, match="weight"):
        layer_norm(_t(X), (5,), _t(W4))
    with pytest.raises(ShapeError, match="running_mean"):
        batch_norm(_t(X), _t(W5), _t(W5))
    with pytest.raises(ConfigError, match="running_mean"):
        batch_norm(_t(X), None, None)
    with pytest.raises(ShapeError, match="more than 1 value"):
        batch_norm(_t(X[:1, :, :1]), None, None, training=True)
    with pytest.raises(ShapeError, match="divisible"):
        group_norm(_t(X), 3)
    with pytest.raises(ShapeError, match="spatial"):
        instance_norm(_t(X[..., :1]))


# --- digits --------------------------------------------------------------------------------------
@pytest.mark.parametrize("shape", [(64, 3, 8, 8), (512, 3)])
def test_batch_norm_keeps_its_digits_far_from_zero(shape):
    data = np.random.default_rng(0).normal(1000.0, 1.0, shape).astype(np.float32)
    over = tuple(i for i in range(len(shape)) if i != 1)
    right = data.astype(np.float64)
    centred = right - right.mean(over, keepdims=True)
    mean, var = dt.zeros(3), dt.zeros(3)
    x, weight = dt.tensor(data, requires_grad=True), dt.ones(3, requires_grad=True)
    out = dt.nn.functional.batch_norm(x, mean, var, weight, None, True, 1.0)
    out.sum().backward()
    normal = centred / np.sqrt(right.var(over, keepdims=True) + 1e-5)
    assert np.abs(out.detach().numpy() - normal).max() < 1e-6
    assert np.abs(var.numpy() / right.var(over, ddof=1) - 1).max() < 1e-7
    assert np.abs(mean.numpy() - right.mean(over)).max() < 4e-5
    assert np.abs(weight.grad.numpy()).max() < 0.15  # 4096 last places of the mean
    assert np.abs(x.grad.numpy()).max() < 1e-4


def test_variances_and_losses_keep_their_digits_far_from_zero():
    data = np.random.default_rng(1).normal(1000.0, 0.01, (5, 400)).astype(np.float32)
    right = data.astype(np.float64)
    x = dt.tensor(data)
    assert np.abs(x.var(1).numpy() / right.var(1, ddof=1) - 1).max() < 1e-6
    assert abs(x.std().item() / right.std(ddof=1) - 1) < 1e-6
    normal = (right - right.mean(1, keepdims=True)) / np.sqrt(right.var(1, keepdims=True) + 1e-5)
    assert np.abs(dt.nn.functional.layer_norm(x, (400,)).numpy() - normal).max() < 1e-5
    target = dt.arange(5)
    sums = np.log(np.exp(right - right.max(1, keepdims=True)).sum(1)) + right.max(1)
    losses = sums - right[np.arange(5), np.arange(5)]
    found = dt.nn.functional.cross_entropy(x, target, reduction="none").numpy()
    assert np.abs(found - losses).max() < 3e-6


def test_gradients_of_an_empty_batch_are_zeros():
    layers = dt.nn.BatchNorm1d(3), dt.nn.BatchNorm1d(3).eval(), dt.nn.GroupNorm(3, 3)
    for layer in (*layers, dt.nn.LayerNorm(3)):
        x = dt.zeros(0, 3, requires_grad=True)
        layer(x).sum().backward()
        assert x.grad.shape == (0, 3)
        assert layer.weight.grad.tolist() == layer.bias.grad.tolist() == [0.0] * 3


@pytest.mark.parametrize("norm", [dt.nn.functional.layer_norm, dt.nn.functional.rms_norm])
def test_rows_of_no_places(norm):
    x = dt.zeros(2, 3, 0, requires_grad=True)
    out = norm(x, (3, 0))
    out.sum().backward()
    assert out.shape == x.grad.shape == (2, 3, 0)


@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 5), (2, 3, 4, 5), (2, 3, 1, 5), (1, 3, 1, 1)])
@pytest.mark.parametrize("affine", ["both", "weight", "bias", "neither"])
def test_evaluation_has_the_bits_of_its_steps(shape, affine):
    """Values and gradients, eager, compiled, and where steps are seen by a transform."""
    rng = np.random.default_rng(0)

    def drawn(*size):
        return dt.from_numpy(rng.normal(size=size).astype(np.float32))

    mean, var = drawn(3), drawn(3).abs() + 0.5
    weight = drawn(3).requires_grad_() if affine in ("both", "weight") else None
    bias = drawn(3).requires_grad_() if affine in ("both", "bias") else None
    x, g = drawn(*shape).requires_grad_(), drawn(*shape)
    leaves = [t for t in (x, weight, bias) if t is not None]

    def eager():
        return dt.nn.functional.batch_norm(x, mean, var, weight, bias)

    def of_steps():
        column = (-1, *(1,) * (len(shape) - 2))
        scale = dt.rsqrt(var + 1e-5)
        scale = scale if weight is None else scale * weight
        shift = -mean * scale if bias is None else bias - mean * scale
        return x * scale.reshape(column) + shift.reshape(column)

    found = []
    for run in (eager, of_steps, dt.compile(eager), dt.compile(eager)):
        for leaf in leaves:
            leaf.grad = None
        y = run()
        y.backward(g)
        found.append([y.detach().numpy().tobytes(), *(t.grad.numpy().tobytes() for t in leaves)])
    assert found[1:] == found[:1] * 3
    through = dt.func.vmap(lambda a: dt.nn.functional.batch_norm(a, mean, var, weight, bias))
    assert through(x.detach()[None]).detach().numpy().tobytes() == found[0][0]


def test_evaluation_can_be_derived_twice():
    x = dt.randn(2, 3, 4, dtype=dt.float64).requires_grad_()
    weight = dt.randn(3, dtype=dt.float64).requires_grad_()
    mean, var = dt.randn(3, dtype=dt.float64), dt.rand(3, dtype=dt.float64) + 0.5

    def f(x, weight):
        return dt.nn.functional.batch_norm(x, mean, var, weight, None)

    assert dt.autograd.gradcheck(f, (x, weight)) and dt.autograd.gradgradcheck(f, (x, weight))
    var.requires_grad_()
    f(x, weight).sum().backward()
    assert var.grad is not None and var.grad.abs().sum() > 0


def test_shapes_alone_move_no_statistics():
    layer = dt.nn.BatchNorm1d(3)
    layer.weight, layer.bias = None, None
    assert layer(dt.empty(4, 3, device="meta")).is_meta
    assert layer.running_mean.tolist() == [0, 0, 0]
