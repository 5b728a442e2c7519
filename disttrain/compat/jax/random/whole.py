"""Samplers of integers and truth values; choices and orders."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np

from .... import keyed
from ....core.types import dtypes
from ....ops import api as ops
from ..array import kind_of, unwrap, wrap
from ..types import canonical, result_kind
from .arguments import (
    Shape,
    common_shape,
    float_kind,
    key_of,
    shape_of,
    unsharded,
)
from .continuous import is_fine


def bits(key: Any, shape: Shape = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Random integers of an unsigned type."""
    unsharded("bits", out_sharding)
    kind = float_kind("bits", "uint64" if dtype is None else dtype, "u", "an unsigned int")
    return wrap(keyed.bits(key_of("bits", key), shape_of(shape), kind))


def randint(
    key: Any, shape: Shape, minval: Any, maxval: Any, dtype: Any = None, *,
    out_sharding: Any = None,
) -> Any:  # fmt: skip
    """Integers in [minval, maxval)."""
    unsharded("randint", out_sharding)
    found, kind = key_of("randint", key), canonical(int if dtype is None else dtype)
    if kind.kind not in "iu":
        raise TypeError(f"randint only accepts integer dtypes, got {kind}")
    shape = common_shape("randint", shape, minval, maxval)
    ends = [unwrap(x) for x in (minval, maxval)]
    whole = dtypes.of(canonical(int))
    ends = [x if x.meta()[1].kind in "iu" else x.to(whole) for x in ends]
    return wrap(keyed.integers(found, shape, ends[0], ends[1], kind))


def bernoulli(
    key: Any, p: Any = 0.5, shape: Any = None, mode: str = "low", *, out_sharding: Any = None
) -> Any:
    """True with probability ``p``."""
    unsharded("bernoulli", out_sharding)
    if mode not in ("high", "low"):
        raise ValueError(f"got {mode=}, expected 'high' or 'low'")
    found, kind = key_of("bernoulli", key), kind_of(p)[0]
    if kind.kind not in "fV":
        raise TypeError(f"bernoulli probability `p` must have a floating dtype, got {kind}.")
    shape = common_shape("bernoulli", shape, p)
    return wrap(keyed.bernoulli(found, unwrap(p, kind), shape, mode == "high"))


def rademacher(key: Any, shape: Shape = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """-1 or 1."""
    unsharded("rademacher", out_sharding)
    kind = canonical(int if dtype is None else dtype)
    return wrap(keyed.rademacher(key_of("rademacher", key), shape_of(shape), kind))


def poisson(
    key: Any, lam: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Poisson's."""
    unsharded("poisson", out_sharding)
    kind = canonical(int if dtype is None else dtype)
    shape = tuple(np.shape(lam)) if shape is None else shape_of(shape)
    rate = unwrap(lam, np.dtype(np.float32))
    return wrap(keyed.poisson(key_of("poisson", key), rate, shape, kind))


def binomial(key: Any, n: Any, p: Any, shape: Any = None, dtype: Any = None) -> Any:
    """How many of ``n`` trials succeed."""
    found, kind = key_of("binomial", key), float_kind("binomial", dtype)
    own = result_kind(kind_of(p), (canonical(float), True))[0]
    shape = common_shape("binomial", shape, n, p)
    out = keyed.binomial(found, unwrap(n, own), unwrap(p, own), shape)
    return wrap(out.to(dtypes.of(kind)))


def multinomial(
    key: Any, n: Any, p: Any, *, shape: Any = None, dtype: Any = None, unroll: Any = 1
) -> Any:
    """Of ``n`` trials, how many had each result."""
    found = key_of("multinomial", key)
    own = result_kind(kind_of(n), kind_of(p), (canonical(float), True))[0]
    full = tuple(np.shape(p)) if shape is None else shape_of(shape)
    n = ops.broadcast_to(unwrap(n, own), full[:-1])
    out = keyed.multinomial(found, n, ops.broadcast_to(unwrap(p, own), full))
    return wrap(out.to(dtypes.of(canonical(float if dtype is None else dtype))))


def geometric(
    key: Any, p: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Trials until one succeeds."""
    unsharded("geometric", out_sharding)
    found, kind = key_of("geometric", key), float_kind("geometric", dtype, "iu", "an int")
    own = result_kind(kind_of(p), (canonical(float), True))[0]
    shape = common_shape("geometric", shape, p)
    return wrap(keyed.geometric(found, unwrap(p, own), shape, kind))


def categorical(
    key: Any, logits: Any, axis: int = -1, shape: Any = None, replace: bool = True,
    mode: str | None = None, *, out_sharding: Any = None,
) -> Any:  # fmt: skip
    """Places along ``axis`` by their logits."""
    unsharded("categorical", out_sharding)
    found, fine, values = key_of("categorical", key), is_fine(mode), unwrap(logits)
    kind, ndim = values.meta()[1], values.ndim
    batch = tuple(np.delete(tuple(values.shape), axis))
    shape = common_shape("categorical", shape, np.empty(batch))
    front = shape[: len(shape) - len(batch)]
    whole = dtypes.of(canonical(int))
    if replace:
        drawn = list(shape[len(front) :])
        drawn.insert(axis % ndim, values.shape[axis])
        noise = keyed.gumbel(found, (*front, *drawn), kind, fine)
        return wrap(keyed.categorical(values, noise, axis - ndim if axis >= 0 else axis).to(whole))
    num = math.prod(front)
    if num > values.shape[axis]:
        raise ValueError(
            f"Number of samples without replacement ({num}) cannot exceed number of categories "
            f"({values.shape[axis]})."
        )
    noise = keyed.gumbel(found, tuple(values.shape), kind, fine)
    places = keyed.largest(ops.movedim(values, axis, -1), ops.movedim(noise, axis, -1), num)
    return wrap(ops.movedim(places, -1, 0).reshape(shape).to(whole))


def permutation(
    key: Any, x: Any, axis: int = 0, independent: bool = False, *, out_sharding: Any = None
) -> Any:
    """A range, or an array along ``axis``, shuffled."""
    unsharded("permutation", out_sharding)
    found, ndim = key_of("permutation", key), np.ndim(x)
    values = unwrap(x) if ndim else _range(x, "x must be an integer or at least 1-dimensional")
    if not -max(ndim, 1) <= axis < max(ndim, 1):
        raise ValueError(f"axis {axis} is out of bounds for array of dimension {max(ndim, 1)}")
    return wrap(keyed.permutation(found, values, axis % max(ndim, 1), independent))


def _range(x: Any, message: str) -> Any:
    if kind_of(x)[0].kind not in "iu":
        raise TypeError(message)
    return ops.arange(index(x), dtype=dtypes.of(canonical(int)))


def choice(
    key: Any, a: Any, shape: Shape = (), replace: bool = True, p: Any = None, axis: int = 0,
    mode: str | None = None,
) -> Any:  # fmt: skip
    """A sample of an array along ``axis``, or of a range."""
    found, shape = key_of("choice", key), _sequence(shape)
    ndim, count = np.ndim(a), math.prod(shape)
    values: Any = unwrap(a) if ndim else None
    axis = axis % ndim if ndim else 0
    num = values.shape[axis] if ndim else index(a)
    if not count:
        return wrap(ops.zeros(shape, dtype=dtypes.of(kind_of(a)[0])))
    if num <= 0:
        raise ValueError("a must be greater than 0 unless no samples are taken")
    if not replace and count > num:
        raise ValueError(
            f"Cannot take a larger sample (size {count}) than population (size {num}) when "
            "'replace=False'"
        )
    if p is None and not replace:
        whole = values if ndim else _range(num, "")
        out = keyed.permutation(found, whole, axis).narrow(axis, 0, count)
    else:
        places = _places(found, num, shape, count, replace, p, mode)
        out = places if not ndim else ops.index_select(values, axis, places.reshape(-1))
    rest = tuple(values.shape) if ndim else ()
    return wrap(out.reshape((*rest[:axis], *shape, *rest[axis + 1 :])))


def _sequence(shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, Sequence):
        raise TypeError(f"shape argument of jax.random.choice must be a sequence, got {shape}")
    return shape_of(shape)


def _places(
    key: Any, num: int, shape: tuple, count: int, replace: bool, p: Any, mode: str | None
) -> Any:
    whole = dtypes.of(canonical(int))
    if p is None:
        low, high = (ops.tensor(np.asarray(x, np.int32)) for x in (0, num))
        return keyed.integers(key, shape, low, high, canonical(int))
    if np.shape(p) != (num,):
        raise ValueError(
            "p must be None or a 1D vector with the same size as a.shape[axis]. p has shape "
            f"{np.shape(p)} and a.shape[axis] is {num}."
        )
    kind = result_kind(kind_of(p), (canonical(float), True))[0]
    chances = unwrap(p, kind)
    if replace:
        return keyed.weighted(key, chances, shape).to(whole)
    noise = keyed.gumbel(key, (num,), kind, is_fine(mode))
    return keyed.largest(ops.log(chances), noise, count).to(whole)
