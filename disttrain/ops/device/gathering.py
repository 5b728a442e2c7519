"""Reading and writing by indices on devices. Where several values fall on one place, sums are added
up in a fixed order (``segments.py``), and of values that replace each other the last one stays.

Indices are not negative. One that is out of range ends the kernel with a message, as in PyTorch.
"""

from __future__ import annotations

import math
from typing import Any

from disttrain.backends.device.raw import RawArray

from ...backends.device.codes.table import GATHER, TAKE, within
from ...backends.device.platform import Platform
from ...core.types.wide import is_half
from ..primitives import elementwise as el
from ..primitives import sparse  # noqa: F401  (declares what is given rules here)
from ..primitives.gathering import _cut, _neutral
from ..primitives.reduce import sum_
from .segments import add_rows, largest, products, winners
from .table import F32, INT64, cast, converted, on_device

_NONE = -(1 << 63)  # no place


@on_device("take")
def _take(platform: Platform, a: RawArray, index: Any, dim: int, skip: int | None = None) -> Any:
    if not isinstance(index, platform.array_type):
        index = platform.xp.full((), index, INT64)
    ahead, behind = a.shape[:dim], a.shape[dim + 1 :]
    out = platform.empty((*ahead, *index.shape, *behind), a.dtype)
    sizes = math.prod(ahead), a.shape[dim], math.prod(behind)
    whole = platform.xp.ascontiguousarray(a).reshape(sizes)
    flat = platform.xp.ascontiguousarray(converted(platform, index, INT64)).reshape(-1)
    platform.run_code(TAKE, (whole, flat, out.reshape(sizes[0], flat.size, sizes[2])))
    return out


@on_device("spread")
def _spread(
    platform: Platform, g: Any, index: Any, dim: int, shape: tuple, skip: int | None = None
) -> Any:
    xp, k = platform.xp, index.ndim
    if dim:
        g = xp.moveaxis(g, tuple(range(dim, dim + k)), tuple(range(k)))
    rest = g.shape[k:]
    rows, flat = g.reshape(index.size, math.prod(rest)), index.reshape(-1)
    if skip is not None:
        keep = (flat != skip).reshape(-1, 1)
        rows = el.where.on_device(platform, keep, rows, rows.dtype.type(0))
    out = add_rows(platform, rows, flat, shape[dim]).reshape(shape[dim], *rest)
    return xp.ascontiguousarray(xp.moveaxis(out, 0, dim)) if dim else out


def inside(platform: Platform, name: str, index: RawArray, n: int, skip: int = _NONE) -> Any:
    """``index`` as contiguous int64, each in 0 .. n - 1 or ``skip``; another ends the kernel with a
    message, as it does in reading."""
    index = platform.xp.ascontiguousarray(converted(platform, index, INT64))
    if index.size:
        platform.run_code(within(name), (index, n, skip))
    return index


def places(platform: Platform, index: Any, dim: int, shape: tuple) -> Any:
    """The places of a flattened array of ``shape`` that ``index`` means along ``dim``."""
    index = inside(platform, "scatter", index, shape[dim])
    steps = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    at = index * steps[dim]
    for i, (n, step) in enumerate(zip(index.shape, steps, strict=True)):
        if i != dim:
            along = platform.xp.arange(n) * step
            at = at + along.reshape(-1, *(1,) * (len(shape) - 1 - i))
    return at.reshape(-1)


@on_device("sparse_product")
def _sparse_product(
    platform: Platform, values: RawArray, b: RawArray, rows: Any, cols: Any, size: int
) -> Any:
    taken = el.mul.on_device(platform, _take(platform, b, cols, 0), values.reshape(-1, 1))
    return add_rows(platform, taken, rows, size)


@on_device("sampled_product")
def _sampled_product(platform: Platform, a: RawArray, b: RawArray, rows: Any, cols: Any) -> Any:
    pairs = _take(platform, a, rows, 0), _take(platform, b, cols, 0)
    return sum_.on_device(platform, el.mul.on_device(platform, *pairs), dims=(1,), keepdim=False)


@on_device("gather")
def _gather(platform: Platform, a: RawArray, index: RawArray, dim: int) -> Any:
    xp, shape = platform.xp, index.shape
    if not a.ndim:
        a, index = a.reshape(1), index.reshape(-1)
    out = platform.empty(index.shape, a.dtype)
    cut = xp.ascontiguousarray(_cut(a, index, dim))
    outer, inner = math.prod(index.shape[:dim]), math.prod(index.shape[dim + 1 :])
    at = xp.ascontiguousarray(converted(platform, index, INT64))
    sizes = outer, index.shape[dim], inner
    platform.run_code(
        GATHER, (cut.reshape(outer, cut.shape[dim], inner), at.reshape(sizes), out.reshape(sizes))
    )
    return out.reshape(shape)


@on_device("put_along")
def _put_along(platform: Platform, g: RawArray, index: RawArray, dim: int, shape: tuple) -> Any:
    if index.ndim and index.shape[dim] == 1:  # no place is written twice
        out = platform.xp.zeros(math.prod(shape), g.dtype)
        out[places(platform, index, dim, shape)] = g.reshape(-1)
        return out.reshape(shape)
    at = places(platform, index, dim, shape)
    return add_rows(platform, g.reshape(-1, 1), at, math.prod(shape)).reshape(shape)


def _replaced(platform: Platform, a: RawArray, at: RawArray, values: Any) -> Any:
    """A copy of ``a`` with ``values`` (a number, or an array) at the flat places ``at``."""
    out = a.copy(order="C")
    flat = out.reshape(-1)
    if not at.size:
        return out
    if not isinstance(values, platform.array_type):
        flat[at] = values
        return out
    xp = platform.xp
    last = winners(platform, at, flat.size)
    chosen = converted(platform, values, a.dtype).reshape(-1)[xp.maximum(last, 0)]
    return el.where.on_device(platform, last >= 0, chosen, flat).reshape(a.shape)


@on_device("scatter")
def _scatter(platform: Platform, a: RawArray, index: RawArray, src: object, dim: int) -> Any:
    at = places(platform, index, dim, a.shape) if a.ndim else index.reshape(-1)
    if isinstance(src, platform.array_type):
        src = platform.xp.broadcast_to(src, index.shape)
    return _replaced(platform, a, at, src)


@on_device("put")
def _put(
    platform: Platform, a: RawArray, index: RawArray, values: RawArray | float, accumulate: bool
) -> Any:
    given = isinstance(values, platform.array_type)
    index = inside(platform, "put", index, a.size)
    if given:
        values = platform.xp.broadcast_to(values, index.shape)
    if not accumulate:
        return _replaced(platform, a, index.reshape(-1), values)
    if not given:
        values = platform.xp.full(index.shape, values, a.dtype)
    values = converted(platform, values, a.dtype).reshape(-1, 1)
    added = add_rows(platform, values, index.reshape(-1), a.size)
    return el.add.on_device(platform, a, added.reshape(a.shape))


# --- other reductions of what falls on one place -----------------------------------------------
@on_device("scatter_reduce")
def _scatter_reduce(
    platform: Platform,
    a: RawArray,
    index: RawArray,
    src: RawArray,
    dim: int,
    reduce: str,
    include_self: bool,
) -> Any:
    kind = a.dtype
    if is_half(kind):
        wide = [cast(platform, x, F32) for x in (a, src)]
        out = _scatter_reduce(platform, wide[0], index, wide[1], dim, reduce, include_self)
        return cast(platform, out, kind)
    at = places(platform, index, dim, a.shape) if a.ndim else index.reshape(-1)
    out = a.copy(order="C").reshape(-1)
    if not at.size:
        return out.reshape(a.shape)
    src = platform.xp.broadcast_to(src, index.shape).reshape(-1)
    if reduce == "prod":
        product, there = products(platform, src, at, out.size)
        whole = out * product
        return platform.xp.where(there, whole if include_self else product, out).reshape(a.shape)
    turned = reduce == "amin"
    if not include_self:
        out[at] = _neutral(reduce, kind)
    if turned:  # the smallest is the largest of what is turned round
        out, src = _turned(out), _turned(src)
    largest(platform, out, at, src)
    return (_turned(out) if turned else out).reshape(a.shape)


def _turned(a: RawArray) -> Any:
    """Numbers in the opposite order, in the same type."""
    return -a if a.dtype.kind == "f" else ~a
