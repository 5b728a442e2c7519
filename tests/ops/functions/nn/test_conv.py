"""Convolutions against loops written out, their adjoints, errors, gradients."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import disttrain as dt
from disttrain import ops
from disttrain.core import wrap
from disttrain.errors import ConfigError, DTypeError, ShapeError
from disttrain.ops.functions.nn import conv
from disttrain.ops.primitives import windows
from support.numeric import check_gradients

RNG = np.random.default_rng(0)

CASES = {
    "plain": ((2, 3, 6, 5), (4, 3, 3, 2), {}),
    "stride, padding": ((2, 3, 6, 5), (4, 3, 3, 3), {"stride": 2, "padding": (1, 2)}),
    "dilation": ((2, 2, 7, 7), (3, 2, 3, 2), {"dilation": (2, 3), "padding": 1}),
    "groups": ((2, 4, 5, 5), (6, 2, 3, 3), {"groups": 2, "padding": 1}),
    "depthwise": ((2, 3, 5, 5), (6, 1, 3, 3), {"groups": 3, "stride": (1, 2)}),
    "pointwise": ((2, 3, 4, 4), (5, 3, 1, 1), {}),
    "pointwise stride": ((2, 3, 5, 4), (5, 3, 1, 1), {"stride": 2}),
    "one dimension": ((2, 3, 8), (4, 3, 3), {"stride": 2, "padding": 1}),
    "three": ((1, 2, 4, 3, 4), (3, 2, 2, 2, 3), {"stride": (1, 1, 2), "padding": 1}),
    "few to many": ((2, 1, 6, 6), (8, 1, 3, 3), {"padding": 1}),
    "many to few": ((2, 8, 6, 6), (1, 8, 3, 3), {"padding": 1}),
}


def _each(value, n):
    return (value,) * n if isinstance(value, int) else value


def _reference(x, w, bias=None, stride=1, padding=0, dilation=1, groups=1):
    n = x.ndim - 2
    stride, padding, dilation = (_each(v, n) for v in (stride, padding, dilation))
    x = np.pad(x, ((0, 0), (0, 0), *((p, p) for p in padding)))
    kernel = w.shape[2:]
    out = [
        (m - d * (k - 1) - 1) // s + 1
        for m, d, k, s in zip(x.shape[2:], dilation, kernel, stride, strict=True)
    ]
    y = np.zeros((len(x), len(w), *out))
    each_in, each_out = w.shape[1], len(w) // groups
    for o in range(len(w)):
        first = o // each_out * each_in
        for at in itertools.product(*map(range, out)):
            places = tuple(
                slice(a * s, a * s + d * (k - 1) + 1, d)
                for a, s, d, k in zip(at, stride, dilation, kernel, strict=True)
            )
            part = x[(slice(None), slice(first, first + each_in), *places)]
            y[(slice(None), o, *at)] = (part * w[o]).sum(tuple(range(1, x.ndim)))
    return y if bias is None else y + bias.reshape(-1, *(1,) * n)


def _function(n, transposed=False):
    return getattr(conv, f"conv{'_transpose' if transposed else ''}{n}d")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("chunk", [1, windows.CHUNK])
def test_conv_is_the_sum_it_says(name, chunk, monkeypatch):
    monkeypatch.setattr(windows, "CHUNK", chunk)
    x_shape, w_shape, how = CASES[name]
    x, w, b = RNG.normal(size=x_shape), RNG.normal(size=w_shape), RNG.normal(size=w_shape[0])
    fn = _function(len(x_shape) - 2)
    got = fn(wrap(x), wrap(w), wrap(b), **how)
    np.testing.assert_allclose(got.array, _reference(x, w, b, **how), atol=1e-12)
    got = fn(wrap(x[0]), wrap(w), **how)
    np.testing.assert_allclose(got.array, _reference(x[:1], w, **how)[0], atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_conv_gradients(name):
    x_shape, w_shape, how = CASES[name]
    x, w, b = RNG.normal(size=x_shape), RNG.normal(size=w_shape), RNG.normal(size=w_shape[0])
    fn = _function(len(x_shape) - 2)
    check_gradients(lambda x, w, b: fn(x, w, b, **how), x, w, b, second=len(x_shape) < 5)


@pytest.mark.parametrize("name", CASES)
def test_transposed_conv_is_the_adjoint(name):
    x_shape, w_shape, how = CASES[name]
    n = len(x_shape) - 2
    x, w = RNG.normal(size=x_shape), RNG.normal(size=w_shape)
    y = _reference(x, w, **how)
    g = RNG.normal(size=y.shape)
    stride, padding, dilation = (
        _each(how.get(k, d), n) for k, d in (("stride", 1), ("padding", 0), ("dilation", 1))
    )
    extra = tuple(
        m - ((o - 1) * s - 2 * p + d * (k - 1) + 1)
        for m, o, s, p, d, k in zip(
            x_shape[2:], y.shape[2:], stride, padding, dilation, w_shape[2:], strict=True
        )
    )
    back = _function(n, True)(wrap(g), wrap(w), output_padding=extra, **how).array
    np.testing.assert_allclose((back * x).sum(), (g * y).sum(), rtol=1e-10)


def test_transposed_conv_gradients_and_bias():
    x, w, b = RNG.normal(size=(2, 4, 3, 3)), RNG.normal(size=(4, 2, 3, 2)), RNG.normal(size=4)
    how = {"stride": 2, "padding": 1, "output_padding": (1, 0), "groups": 2}
    check_gradients(lambda x, w, b: conv.conv_transpose2d(x, w, b, **how), x, w, b)


def test_transposed_conv_of_single_places_with_room_behind():
    x, w = RNG.normal(size=(2, 4, 5)), RNG.normal(size=(4, 2, 1))
    how = {"dilation": 3, "output_padding": 2}
    check_gradients(lambda x, w: conv.conv_transpose1d(x, w, **how), x, w)


def test_what_is_not_finite_stays_in_its_windows():
    x = RNG.normal(size=(3, 16, 20, 21)).astype("f4")
    w = RNG.normal(size=(32, 16, 3, 3)).astype("f4")
    x[1, 5, 9, 9] = np.inf
    y = conv.conv2d(wrap(x), wrap(w), padding=1).array
    where = np.zeros(y.shape, bool)
    where[1, :, 8:11, 8:11] = True
    assert np.array_equal(np.isfinite(y), ~where)
    assert np.array_equal(np.isinf(y), where)


def test_named_paddings():
    x, w = RNG.normal(size=(1, 2, 5, 6)), RNG.normal(size=(3, 2, 2, 3))
    same = conv.conv2d(wrap(x), wrap(w), padding="same").array
    assert same.shape == (1, 3, 5, 6)
    wide = np.pad(x, ((0, 0), (0, 0), (0, 1), (1, 1)))
    np.testing.assert_allclose(same, _reference(wide, w), atol=1e-12)
    valid = conv.conv2d(wrap(x), wrap(w), padding="valid").array
    np.testing.assert_allclose(valid, _reference(x, w), atol=1e-12)
    with pytest.raises(ConfigError, match="stride"):
        conv.conv2d(wrap(x), wrap(w), padding="same", stride=2)


@pytest.mark.parametrize("kind", ["f2", "f4"])
def test_narrow_types(kind):
    x, w = RNG.normal(size=(2, 3, 5, 5)).astype(kind), RNG.normal(size=(4, 3, 3, 3)).astype(kind)
    got = conv.conv2d(wrap(x), wrap(w)).array
    assert got.dtype == x.dtype
    want = _reference(x.astype("f8"), w.astype("f8"))
    np.testing.assert_allclose(got, want, atol=0.03 if kind == "f2" else 1e-5)


def test_unfold_and_fold():
    x = RNG.normal(size=(2, 3, 6, 5))
    how = {"kernel_size": (3, 2), "dilation": (1, 2), "padding": (1, 0), "stride": 2}
    columns = conv.unfold(wrap(x), **how).array
    w = RNG.normal(size=(4, 3, 3, 2))
    want = _reference(x, w, stride=2, padding=(1, 0), dilation=(1, 2)).reshape(2, 4, -1)
    np.testing.assert_allclose(w.reshape(4, -1) @ columns, want, atol=1e-12)
    g = RNG.normal(size=columns.shape)
    back = conv.fold(wrap(g), (6, 5), **how).array
    np.testing.assert_allclose((back * x).sum(), (g * columns).sum())
    check_gradients(lambda x: conv.unfold(x, **how) ** 2, x)
    with pytest.raises(ShapeError, match="fold"):
        conv.fold(wrap(g), (6, 7), **how)


def test_errors():
    x, w = ops.create.zeros(1, 3, 5, 5), ops.create.zeros(4, 3, 3, 3)
    with pytest.raises(ShapeError, match="has 3 channels; needed 6"):
        conv.conv2d(x, ops.create.zeros(4, 6, 3, 3))
    with pytest.raises(ShapeError, match="smaller than the kernel"):
        conv.conv2d(x, ops.create.zeros(4, 3, 7, 3))
    with pytest.raises(ShapeError, match=r"Expected 3D .* or 4D .* got input of size"):
        conv.conv2d(ops.create.zeros(3, 5), w)
    with pytest.raises(ShapeError, match="bias"):
        conv.conv2d(x, w, ops.create.zeros(3))
    with pytest.raises(ConfigError, match="groups"):
        conv.conv2d(x, w, groups=3)
    with pytest.raises(DTypeError, match="one type"):
        conv.conv2d(x.double(), w)
    with pytest.raises(ConfigError, match="output_padding"):
        conv.conv_transpose2d(x, ops.create.zeros(3, 2, 3, 3), output_padding=1)
    with pytest.raises(ShapeError, match=r"leaves an output of .0, 5.; needed at least 1"):
        conv.conv_transpose2d(x[:, :, :1], ops.create.zeros(3, 2, 2, 1), padding=(1, 0))


def test_meta_tensors_have_shapes():
    x = ops.create.zeros(2, 3, 8, 8, device="meta").requires_grad_()
    y = conv.conv2d(x, ops.create.zeros(4, 3, 3, 3, device="meta"), stride=2)
    assert tuple(y.shape) == (2, 4, 3, 3)


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2])
def test_batches_of_nothing(dims, stride, groups):
    for name in ("Conv", "ConvTranspose"):
        layer = getattr(dt.nn, f"{name}{dims}d")(2, 4, 3, stride=stride, padding=1, groups=groups)
        x = dt.zeros(0, 2, *[8] * dims, requires_grad=True)
        y = layer(x)
        y.sum().backward()
        assert y.shape[:2] == (0, 4) and x.grad.shape == x.shape
        assert not layer.weight.grad.any() and not layer.bias.grad.any()


@pytest.mark.parametrize("name", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("channels", [(0, 4), (4, 0), (0, 0)])
def test_layers_of_no_channels(name, channels):
    with pytest.warns(UserWarning, match="without elements"):
        layer = getattr(dt.nn, f"{name}2d")(*channels, 3, stride=2)
    x = dt.ones(2, channels[0], 7, 5, requires_grad=True)
    out = layer(x)
    out.sum().backward()
    assert out.shape[:2] == (2, channels[1])
    assert bool((out == layer.bias.reshape(-1, 1, 1)).all())
    assert (x.grad.shape, layer.weight.grad.shape) == (x.shape, layer.weight.shape)


@pytest.mark.parametrize("name", ["conv2d", "conv_transpose2d"])
@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"stride": -2}, "non-positive stride"),
        ({"stride": (1, 0)}, "non-positive stride"),
        ({"padding": -1}, "negative padding"),
        ({"dilation": 0}, "non-positive dilation"),
    ],
)
def test_steps_that_lead_nowhere_are_named(name, how, said):
    with pytest.raises(RuntimeError, match=f"{said} is not supported"):
        getattr(conv, name)(dt.ones(1, 1, 5, 5), dt.ones(1, 1, 3, 3), **how)


def test_settings_of_layers_are_checked():
    with pytest.raises(ValueError, match="groups must be a positive integer"):
        dt.nn.Conv1d(1, 1, 3, groups=-1)
    with pytest.raises(ValueError, match="Invalid padding string 'foo'"):
        dt.nn.Conv2d(1, 1, 3, padding="foo")
    with pytest.raises(ValueError, match="padding_mode must be one of zeros, reflect"):
        dt.nn.Conv2d(1, 1, 3, padding_mode="xyz")
