"""Slices that begin where a tensor says: of a fixed size, moved inside where they would reach
beyond the ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.algebra import Algebra
from ...core.gate import Primitive
from ...core.tensor import Tensor
from ...ops import api as ops
from ...ops.declare import declare_apart
from ...ops.primitives.batching import fronted


def dynamic_slice(x: Tensor, start: Tensor, sizes: Sequence[int]) -> Tensor:
    """The part of ``x`` of these ``sizes`` from ``start`` (a vector of integers) on."""
    return _slice(x, start, sizes=tuple(sizes))


def dynamic_update_slice(x: Tensor, update: Tensor, start: Tensor) -> Tensor:
    """``x`` with ``update`` in it from ``start`` on."""
    return _update(x, update, start)


def _region(shape: tuple, sizes: Sequence[int], start: Any) -> tuple:
    first = [min(max(int(s), 0), n - k) for s, n, k in zip(start, shape, sizes, strict=True)]
    return tuple(slice(s, s + k) for s, k in zip(first, sizes, strict=True))


def _cut(x: Any, start: Any, *, sizes: tuple) -> Any:
    return x[_region(x.shape, sizes, _host(start))].copy()


def _put(x: Any, update: Any, start: Any) -> Any:
    out = x.copy()
    out[_region(x.shape, update.shape, _host(start))] = update
    return out


def _host(start: Any) -> Any:
    return start.tolist() if isinstance(start, np.ndarray) else start.to_host().tolist()


def _zeros(like: Any, shape: tuple) -> Any:
    if not isinstance(like, Tensor):
        return np.zeros(shape, like.dtype)
    return Algebra.zeros(shape, like.meta()[1])


_slice: Primitive = declare_apart(
    "dynamic_slice", _cut, "x start",
    {"x": lambda g, start, x_shape: _update(_zeros(g, x_shape), g, start)},
)  # fmt: skip
_update: Primitive = declare_apart(
    "dynamic_update_slice", _put, "x update start",
    {
        "x": lambda g, start, update: _update(g, _zeros(g, tuple(update.shape)), start),
        "update": lambda g, start, update: _slice(g, start, sizes=tuple(update.shape)),
    },
)  # fmt: skip


def _pushed_slice(primals: tuple, tangents: tuple, params: dict) -> Tensor:
    return _slice(tangents[0], primals[1], **params)


def _pushed_update(primals: tuple, tangents: tuple, params: dict) -> Tensor:
    x, update = [
        Algebra.zeros_like(p) if t is None else t
        for p, t in zip(primals[:2], tangents[:2], strict=True)
    ]
    return _update(x, update, primals[2])


def _batched_slice(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
    x, start = args
    sizes = params["sizes"]
    if dims[1] is None:
        return _slice(fronted(x, dims[0], size), _from_zero(start), sizes=(size, *sizes)), 0
    x = fronted(x, dims[0], size)
    at = places(tuple(x.shape[1:]), sizes, fronted(start, dims[1], size))
    return ops.gather(x.reshape(size, -1), 1, at.reshape(size, -1)).reshape(size, *sizes), 0


def _batched_update(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
    x, update = (fronted(a, d, size) for a, d in zip(args[:2], dims[:2], strict=True))
    if dims[2] is None:
        return _update(x, update, _from_zero(args[2])), 0
    at = places(tuple(x.shape[1:]), tuple(update.shape[1:]), fronted(args[2], dims[2], size))
    flat = ops.scatter(x.reshape(size, -1), 1, at.reshape(size, -1), update.reshape(size, -1))
    return flat.reshape(x.shape), 0


def _from_zero(start: Tensor) -> Tensor:
    return ops.cat([ops.zeros(1, dtype=start.dtype), start])


def places(shape: tuple, sizes: Sequence[int], start: Tensor) -> Tensor:
    """The numbers, in the flat order of ``shape``, of what lies in slices from each row of
    ``start`` on: [rows, *sizes]."""
    rows, n = start.shape[0], len(shape)
    total = ops.zeros(rows, *[1] * n, dtype=ops.zeros(0).long().dtype)
    step = 1
    for d in reversed(range(n)):
        first = start[:, d].long().clamp(0, shape[d] - sizes[d]).reshape(rows, *[1] * n)
        along = ops.arange(sizes[d]).reshape(*[1] * (d + 1), -1, *[1] * (n - d - 1))
        total = total + (first + along) * step
        step *= shape[d]
    return total.expand(rows, *sizes)


_slice.shape = lambda x, start, *, sizes: (sizes, x.dtype)
_update.shape = lambda x, update, start: (tuple(x.shape), x.dtype)
_slice.jvp, _update.jvp = _pushed_slice, _pushed_update
_slice.batch, _update.batch = _batched_slice, _batched_update
