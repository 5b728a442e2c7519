"""Pooling against loops written out, errors, gradients; against PyTorch where it is installed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from disttrain import ops
from disttrain.core import wrap
from disttrain.errors import ConfigError, ShapeError
from disttrain.ops.functions.nn import pool
from disttrain.ops.primitives.pool import pooled_sizes
from support.numeric import check_gradients

RNG = np.random.default_rng(0)

MAX = {
    "two": ((2, 3, 6, 4), {"kernel_size": 2}),
    "odd": ((2, 3, 7, 5), {"kernel_size": 2}),
    "overlap": ((2, 2, 6, 7), {"kernel_size": (3, 2), "stride": (2, 1), "padding": 1}),
    "dilation": ((1, 2, 8, 8), {"kernel_size": 3, "stride": 2, "dilation": 2}),
    "ceil": ((1, 2, 7, 8), {"kernel_size": 3, "stride": 2, "ceil_mode": True}),
    "ceil, padding": (
        (1, 1, 5, 6),
        {"kernel_size": 2, "stride": 2, "padding": 1, "ceil_mode": True},
    ),
    "ceil, larger than the input": (
        (2, 2, 1, 3),
        {"kernel_size": 2, "stride": 2, "ceil_mode": True},
    ),
    "one": ((2, 3, 9), {"kernel_size": 3, "stride": 2}),
    "three": ((1, 2, 4, 4, 5), {"kernel_size": 2}),
}
AVG = {name: case for name, case in MAX.items() if name != "dilation"} | {
    "own pixels": (
        (1, 2, 6, 5),
        {"kernel_size": 3, "padding": 1, "stride": 2, "count_include_pad": False},
    ),
    "ceil, own pixels": (
        (1, 2, 6, 6),
        {
            "kernel_size": 3,
            "stride": 2,
            "padding": 1,
            "ceil_mode": True,
            "count_include_pad": False,
        },
    ),
    "ceil, larger than the input": (
        (2, 2, 2, 4),
        {"kernel_size": 3, "stride": (2, 1), "ceil_mode": True},
    ),
    "divisor": ((1, 2, 6, 6), {"kernel_size": 2, "divisor_override": 3}),
}


def _each(value, n):
    return (value,) * n if isinstance(value, int) else value


def _windows(x, how):
    """Every window as (place, [(flat position, inside, inside padding)])."""
    n = x.ndim - 2
    kernel = _each(how["kernel_size"], n)
    stride = _each(how.get("stride", kernel), n)
    padding, dilation = _each(how.get("padding", 0), n), _each(how.get("dilation", 1), n)
    size = x.shape[2:]
    out = pooled_sizes(size, kernel, stride, padding, dilation, how.get("ceil_mode", False))
    for at in itertools.product(*map(range, out)):
        axes = [
            [a * s - p + t * d for t in range(k)]
            for a, s, p, d, k in zip(at, stride, padding, dilation, kernel, strict=True)
        ]
        places = list(itertools.product(*axes))
        own = [all(0 <= i < m for i, m in zip(q, size, strict=True)) for q in places]
        near = [
            all(-p <= i < m + p for i, m, p in zip(q, size, padding, strict=True)) for q in places
        ]
        yield out, at, places, own, near


def _max_reference(x, how):
    values, at_place = None, None
    for out, at, places, own, _ in _windows(x, how):
        if values is None:
            values = np.zeros((*x.shape[:2], *out))
            at_place = np.zeros((*x.shape[:2], *out), int)
        real = [q for q, o in zip(places, own, strict=True) if o]
        stack = np.stack([x[(..., *q)] for q in real])
        flat = np.array([np.ravel_multi_index(q, x.shape[2:]) for q in real])
        values[(..., *at)] = stack.max(0)
        at_place[(..., *at)] = flat[stack.argmax(0)]
    return values, at_place


def _avg_reference(x, how):
    values = None
    for out, at, places, own, near in _windows(x, how):
        if values is None:
            values = np.zeros((*x.shape[:2], *out))
        total = sum(x[(..., *q)] for q, o in zip(places, own, strict=True) if o)
        count = sum(near) if how.get("count_include_pad", True) else sum(own)
        values[(..., *at)] = total / (how.get("divisor_override") or count)
    return values


@pytest.mark.parametrize("name", MAX)
def test_max_pool(name):
    shape, how = MAX[name]
    x = RNG.normal(size=shape)
    fn = getattr(pool, f"max_pool{len(shape) - 2}d")
    values, places = fn(wrap(x), **how, return_indices=True)
    want, want_places = _max_reference(x, how)
    np.testing.assert_array_equal(values.array, want)
    np.testing.assert_array_equal(places.array, want_places)
    np.testing.assert_array_equal(fn(wrap(x[0]), **how).array, want[0])
    check_gradients(lambda x: fn(x, **how) ** 2, x, second=len(shape) < 5)


def test_equal_values_give_the_gradient_to_the_first():
    x = wrap(np.ones((1, 1, 2, 2))).requires_grad_()
    pool.max_pool2d(x, 2).sum().backward()
    assert x.grad.tolist() == [[[[1, 0], [0, 0]]]]


@pytest.mark.parametrize("name", AVG)
def test_avg_pool(name):
    shape, how = AVG[name]
    x = RNG.normal(size=shape)
    fn = getattr(pool, f"avg_pool{len(shape) - 2}d")
    want = _avg_reference(x, how)
    np.testing.assert_allclose(fn(wrap(x), **how).array, want, rtol=1e-12)
    np.testing.assert_allclose(fn(wrap(x[0]), **how).array, want[0], rtol=1e-12)
    check_gradients(lambda x: fn(x, **how) ** 2, x, second=len(shape) < 5)


@pytest.mark.peer
@pytest.mark.parametrize("case", [*MAX.values(), *AVG.values()])
def test_like_torch(case):
    import torch

    shape, how = case
    x = RNG.normal(size=shape)
    for kind in ("max", "avg"):
        name = f"{kind}_pool{len(shape) - 2}d"
        if (kind == "max") == bool({"count_include_pad", "divisor_override"} & set(how)):
            continue
        if kind == "avg" and "dilation" in how:
            continue
        want = getattr(torch.nn.functional, name)(torch.from_numpy(x), **how)
        np.testing.assert_allclose(getattr(pool, name)(wrap(x), **how).array, want, rtol=1e-12)


def test_narrow_types_and_integers():
    x = RNG.normal(size=(1, 1, 4, 4)).astype("f2")
    assert pool.avg_pool2d(wrap(x), 2).array.dtype == np.float16
    assert pool.max_pool2d(wrap(np.arange(16).reshape(1, 1, 4, 4)), 2, padding=1).array.max() == 15


def test_errors():
    x = ops.create.zeros(1, 1, 4, 4)
    with pytest.raises(ConfigError, match="half"):
        pool.max_pool2d(x, 2, padding=2)
    with pytest.raises(ShapeError, match="smaller than the window"):
        pool.max_pool2d(x, 5)
    with pytest.raises(ShapeError, match="smaller than the window"):
        pool.avg_pool2d(x, 6, stride=2, ceil_mode=True)
    with pytest.raises(ShapeError, match="3 or 4 dimensions"):
        pool.avg_pool2d(ops.create.zeros(4, 4), 2)
    with pytest.raises(ConfigError, match="divisor_override"):
        pool.avg_pool2d(x, 2, divisor_override=0)
    with pytest.raises(ConfigError, match="at least 1"):
        pool.avg_pool2d(x, 2, stride=0)
