"""Reductions that keep the type of what they reduce (of integers, too), over no dimension where
none is named, and of nothing; running ones from either end."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..core.tensor import Tensor
from ..core.types import dtypes
from ..core.types.dtypes import finfo, iinfo
from ..errors import ShapeError
from ..linalg import vector_norm
from ..ops import api as ops

Reduction = Callable[..., Tensor]


def dims_of(x: Tensor, axis: Any) -> tuple[int, ...]:
    """The dimensions that ``axis`` names; None: all, an empty list: none."""
    rank = x.ndim
    if axis is None:
        return tuple(range(rank))
    if axis.__class__ is int and -rank <= axis < rank:
        return (axis % rank,)
    given = axis if isinstance(axis, (list, tuple)) else [axis]
    for a in given:
        if not -rank <= a < rank:
            raise ShapeError(f"Invalid reduction dimension ({a} for input with {rank} dimension(s)")
    return tuple(sorted({int(a) % rank for a in given}))


def over(fn: Callable[[Tensor, tuple, bool], Tensor]) -> Reduction:
    """The reduction ``(x, axis, keepdims)`` of what reduces dimensions that there are."""

    def reduce(x: Tensor, axis: Any = None, keepdims: bool = False) -> Tensor:
        dims = dims_of(x, axis)
        if dims:
            return fn(x, dims, bool(keepdims))
        return x.clone() if x.ndim else fn(x.reshape(1), (0,), False)

    return reduce


def _mean(x: Tensor, dims: tuple, keep: bool) -> Tensor:
    if x.dtype.is_floating_point or x.dtype.is_complex:
        return ops.mean(x, dim=dims, keepdim=keep)
    count = math.prod(x.shape[d] for d in dims)
    total = ops.sum(x, dim=dims, keepdim=keep)
    return ops.div(total, max(count, 1), rounding_mode="trunc").to(x.dtype)


def _each(fn: Callable) -> Callable[[Tensor, tuple, bool], Tensor]:
    """One dimension after the other."""

    def reduce(x: Tensor, dims: tuple, keep: bool) -> Tensor:
        for d in reversed(dims):
            x = fn(x, dim=d, keepdim=keep)
        return x

    return reduce


def _extreme(fn: Callable, greatest: bool) -> Callable[[Tensor, tuple, bool], Tensor]:
    """Of nothing, the least (or greatest) number that there is."""

    def reduce(x: Tensor, dims: tuple, keep: bool) -> Tensor:
        if all(x.shape[d] for d in dims):
            found: Tensor = fn(x, dim=dims, keepdim=keep)
            return found
        real = x.dtype.is_floating_point
        about: Any = finfo(x.dtype) if real else iinfo(x.dtype)
        bound = (about.min, -math.inf) if greatest else (about.max, math.inf)
        sizes = [1 if d in dims else n for d, n in enumerate(x.shape) if keep or d not in dims]
        return ops.full(sizes, bound[real], dtype=x.dtype)

    return reduce


def _variance(x: Tensor, dims: tuple, keep: bool) -> Tensor:
    return ops.var(x, dim=dims, keepdim=keep, correction=0)


total = over(lambda x, d, k: ops.sum(x, dim=d, keepdim=k, dtype=x.dtype))
mean = over(_mean)
product = over(lambda x, d, k: _each(ops.prod)(x, d, k).to(x.dtype))
greatest = over(_extreme(ops.amax, True))
least = over(_extreme(ops.amin, False))
some = over(_each(ops.any))
every = over(_each(ops.all))
logsumexp = over(lambda x, d, k: ops.logsumexp(x, dim=d, keepdim=k))
variance = over(_variance)
deviation = over(lambda x, d, k: ops.sqrt(_variance(x, d, k)))
length = over(lambda x, d, k: vector_norm(x, dim=d, keepdim=k))


def running(fn: Callable, neutral: float) -> Callable[..., Tensor]:
    """``fn``, as a function ``(x, axis, exclusive, reverse)``: without the element itself, from the
    other end."""

    def scan(x: Tensor, axis: int = 0, exclusive: bool = False, reverse: bool = False) -> Tensor:
        x = ops.flip(x, [axis]) if reverse else x
        if exclusive:
            first = ops.full_like(x.narrow(axis, 0, 1), neutral)
            x = ops.cat([first, x.narrow(axis, 0, x.shape[axis] - 1)], axis)
        found = fn(x, dim=axis).to(x.dtype)
        return ops.flip(found, [axis]) if reverse else found

    return scan


cumsum = running(ops.cumsum, 0)
cumprod = running(ops.cumprod, 1)
cumulative_logsumexp = running(ops.logcumsumexp, -math.inf)


def place_of(fn: Callable) -> Callable[[Tensor, Any, Any], Tensor]:
    """``argmax`` and its kin as functions ``(x, axis, kind)``, of flags, too."""
    return lambda x, axis, kind: fn(x.byte() if x.dtype is dtypes.bool else x, dim=axis or 0).to(
        kind
    )


argmax = place_of(ops.argmax)
argmin = place_of(ops.argmin)


def counts(x: Tensor, weights: Tensor | None = None, least: int | None = None,
           most: int | None = None, kind: Any = None, flags: bool = False) -> Tensor:  # fmt: skip
    """How often each number from 0 on is in ``x`` (with ``weights``, their sums); ``least`` of them
    at least, ``most`` at most; ``flags``: 1 for what is there."""
    whole = None if weights is None else weights.flatten()
    found = ops.bincount(x.flatten().long(), whole, least or 0)
    found = found if most is None else found[:most]
    found = (found > 0).int() if flags else found
    return found.to(kind if weights is None else weights.dtype)
