"""Public functions that read and write by index. Torch's names.

``places`` has ``x[...]``; the primitives are in ``gathering``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np

from ...backends.device.array import DeviceArray
from ...core.annotations import Number, Scalar
from ...core.classes import values_of
from ...core.constants import constant
from ...core.gate import Primitive, gate
from ...core.tensor import Tensor, beside, wrap
from ...core.types.wide import is_half
from ...errors import ConfigError, DimError, DTypeError, ShapeError
from ...symbolic import is_symbolic, made
from ..primitives import elementwise as el
from ..primitives import gathering as prim
from ..primitives import views
from ..primitives.batching import by_rows, made_beside
from ..primitives.reduce import cumsum
from ..promotion import factor, refuse, same_type
from .args import broadcast, kinds, one_dim
from .args import tensor as as_input
from .index_arrays import (
    as_values,
    bounded,
    index_get,
    index_put,
    integers,
    masked,
    nonzero_places,
)

Side: TypeAlias = Literal["left", "right"]
_ALL = slice(None)
INT64 = (np.dtype(np.int64),)


# --- along one dimension -----------------------------------------------------------------------
def _along(where: str, input: Tensor, dim: int, index: Tensor) -> tuple[int, Tensor]:
    """``dim`` and ``index`` of gather and scatter, checked."""
    as_input(input, where)
    as_input(index, where, "index")
    d = one_dim(dim, input.ndim, where)
    shape, given = tuple(input.shape), tuple(index.shape)
    if len(given) != len(shape):
        raise ShapeError(
            f"{where}: index of shape {list(given)} for an input of shape {list(shape)}; both need "
            "the same number of dimensions"
        )
    for i, (n, m) in enumerate(zip(shape, given, strict=True)):
        if i != d and m > n:
            raise ShapeError(
                f"{where}: index of shape {list(given)} is larger than the input of shape "
                f"{list(shape)} in dimension {i}; only dimension {d} may be larger"
            )
    return d, bounded(where, index, d, shape[d] if shape else 1)


def _line(t: object) -> Any:
    """A tensor without dimensions as one with one element; all else as it is."""
    return views.reshape(t, shape=(1,)) if isinstance(t, Tensor) and not t.ndim else t


def _scattering(fn: Callable) -> Callable:
    """What scatter and its kin have in common: an empty index changes nothing, and a tensor without
    dimensions counts as one with one element."""

    @functools.wraps(fn)
    def run(
        input: Tensor, dim: int, index: Tensor, src: object = None, *args: object, **more: object
    ) -> Any:
        if isinstance(input, Tensor) and isinstance(index, Tensor):
            if not index.shape.numel():
                one_dim(dim, input.ndim, fn.__name__)
                return el.copy(input)
            if not (input.ndim and index.ndim):
                out = fn(_line(input), dim, _line(index), _line(src), *args, **more)
                return views.reshape(out, shape=tuple(input.shape))
        return fn(input, dim, index, src, *args, **more)

    return run


def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """``out[i][j] = input[index[i][j]][j]`` for ``dim=0``, and so on; the shape is index's."""
    if isinstance(input, Tensor) and isinstance(index, Tensor):
        shape = tuple(index.shape)
        if not index.shape.numel():
            one_dim(dim, input.ndim, "gather")
            integers("gather", index)
            nothing = views.getitem(views.reshape(input, shape=(-1,)), index=(slice(0, 0),))
            return views.reshape(nothing, shape=shape)
        if not (input.ndim and shape):
            return views.reshape(gather(_line(input), dim, _line(index)), shape=shape)
    d, index = _along("gather", input, dim, index)
    return prim.gather(input, index, dim=d)


def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """``gather`` with the other dimensions broadcast, where indices below 0 count from the end; the
    flattened input without ``dim``."""
    if dim is None:
        return take(input, views.reshape(indices, shape=(-1,)))
    if input.ndim != indices.ndim:
        raise ShapeError(
            "take_along_dim: input and indices should have the same number of dimensions, but "
            f"shapes {list(input.shape)} and {list(indices.shape)} were given"
        )
    d = one_dim(dim, input.ndim, "take_along_dim")
    ones = (tuple(1 if i == d else n for i, n in enumerate(t.shape)) for t in (input, indices))
    common = broadcast("take_along_dim", *ones)
    sizes = [(*common[:d], t.shape[d], *common[d + 1 :]) for t in (input, indices)]
    indices = bounded("take_along_dim", indices, d, input.shape[d], negative=True, types=INT64)
    return gather(views.expand(input, shape=sizes[0]), d, views.expand(indices, shape=sizes[1]))


def _source(where: str, input: Tensor, index: Tensor, src: object) -> Any:
    """What is scattered, cut to the shape of ``index``."""
    kind = input.meta()[1]
    if not isinstance(src, Tensor):
        return src
    if src.meta()[1] != kind:
        raise DTypeError(
            f"{where}: src is {src.dtype!r}, the input {input.dtype!r}; they must be the same"
        )
    shape, need = tuple(src.shape), tuple(index.shape)
    if len(shape) != len(need) or any(n > m for n, m in zip(need, shape, strict=True)):
        raise ShapeError(
            f"{where}: src of shape {list(shape)} given; it must be at least as large as the "
            f"index, of shape {list(need)}"
        )
    return src if shape == need else views.getitem(src, index=tuple(slice(n) for n in need))


@_scattering
def scatter(
    input: Tensor, dim: int, index: Tensor, src: Tensor | Number | None = None, *,
    value: Number | None = None, reduce: str | None = None,
) -> Tensor:  # fmt: skip
    """A copy of ``input`` with ``out[index[i][j]][j] = src[i][j]`` for ``dim=0``, and so on.

    ``src``: a tensor or a number. ``reduce="add"`` adds instead, ``"multiply"`` multiplies.
    """
    src = value if src is None else src
    d, index = _along("scatter", input, dim, index)
    src = _source("scatter", input, index, src)
    if reduce is None:
        return prim.scatter(input, index, src, dim=d)
    if not isinstance(src, Tensor):
        value, size, kind = src, tuple(index.shape), input.meta()[1]
        src = made_beside(input, lambda xp: xp.full(size, value, kind))
    if reduce == "add":
        return input + prim.put_along(src, index, dim=d, shape=tuple(input.shape))
    if reduce == "multiply":
        return scatter_reduce(input, d, index, src, "prod")
    raise ConfigError(f"scatter: reduce={reduce!r} given; needed None, 'add' or 'multiply'")


@_scattering
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """A copy of ``input`` with ``out[index[i][j]][j] += src[i][j]`` for ``dim=0``, and so on."""
    d, index = _along("scatter_add", input, dim, index)
    src = _source("scatter_add", input, index, as_input(src, "scatter_add", "src"))
    return input + prim.put_along(src, index, dim=d, shape=tuple(input.shape))


@_scattering
def scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """``scatter_add`` with another reduction: sum, mean, prod, amax or amin (or max and min).

    ``include_self=False`` starts from the neutral element at every place that is written. The
    gradient of amax and amin is shared among all that are equal to the result.
    """
    d, index = _along("scatter_reduce", input, dim, index)
    src = _source("scatter_reduce", input, index, as_input(src, "scatter_reduce", "src"))
    shape = tuple(input.shape)
    if reduce in ("sum", "mean"):
        kind = input.meta()[1]
        ones = el.cast(el.eq(index, index), dtype=kind)
        hits = prim.put_along(ones, index, dim=d, shape=shape)
        start = input if include_self else el.where(el.ne(hits, 0), wrap(np.zeros((), kind)), input)
        total = start + prim.put_along(src, index, dim=d, shape=shape)
        if reduce == "sum":
            return total
        counts = hits + 1 if include_self else el.where(el.eq(hits, 0), 1, hits)
        return el.floor_divide(total, counts) if kind.kind in "iu" else total / counts
    reduce = {"max": "amax", "min": "amin"}.get(reduce, reduce)
    if reduce not in prim.EXTREMES and reduce != "prod":
        raise ConfigError(
            f"scatter_reduce: reduce={reduce!r} given; needed sum, mean, prod, amax or amin"
        )
    if reduce != "prod" and input.meta()[1].kind == "c":
        raise refuse("scatter_reduce", input.meta()[1])
    return prim.scatter_reduce(
        input, index, src, dim=d, reduce=reduce, include_self=bool(include_self)
    )


def _one_dimensional(where: str, input: Tensor, dim: int, index: Tensor) -> tuple[int, Tensor]:
    as_input(input, where)
    as_input(index, where, "index")
    if index.ndim > 1:
        raise DimError(f"{where}: index of shape {list(index.shape)} given; needed one dimension")
    if index.ndim == 0:
        index = views.reshape(index, shape=(1,))
    d = one_dim(dim, input.ndim, where)
    return d, bounded(where, index, d, input.shape[d] if input.ndim else 1)


def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices of ``input`` along ``dim`` that ``index`` (1-d) names."""
    d, index = _one_dimensional("index_select", input, dim, index)
    if input.ndim == 0:
        return el.copy(input)
    return prim.take(input, index, dim=d)


def index_add(
    input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1
) -> Tensor:
    """A copy of ``input`` with slice i of ``source`` (times ``alpha``) added to slice index[i]."""
    d, index = _one_dimensional("index_add", input, dim, index)
    same_type("index_add", input, as_input(source, "index_add", "source"))
    shape = tuple(input.shape)
    need = (*shape[:d], index.shape[0], *shape[d + 1 :])
    if tuple(source.shape) != need:
        raise ShapeError(
            f"index_add: source of shape {list(source.shape)} given; needed {list(need)}"
        )
    added = prim.spread(source, index, dim=d, shape=shape)
    return input + (added if alpha == 1 else added * factor("index_add", alpha, input.dtype))


def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A copy of ``input`` with slice i of ``source`` written over slice index[i]."""
    if isinstance(input, Tensor) and not input.ndim:
        return views.reshape(index_copy(_line(input), dim, index, _line(source)), shape=())
    d, index = _one_dimensional("index_copy", input, dim, index)
    same_type("index_copy", input, as_input(source, "index_copy", "source"))
    need = (*input.shape[:d], index.shape[0], *input.shape[d + 1 :]) if input.ndim else ()
    if tuple(source.shape) != need and (source.ndim or index.shape[0] != 1):
        raise ShapeError(
            f"index_copy: source of shape {list(source.shape)} given; needed {list(need)}"
        )
    return index_put(input, (_ALL,) * d + (index,), source)


def index_fill(input: Tensor, dim: int, index: Tensor, value: Scalar) -> Tensor:
    """A copy of ``input`` with ``value`` written over the slices that ``index`` names."""
    d, index = _one_dimensional("index_fill", input, dim, index)
    if isinstance(value, complex) and not input.dtype.is_complex:
        raise DTypeError(
            f"index_fill: {value}: Converting complex Scalar to non-complex type is not supported"
        )
    if input.ndim == 0:
        line = index_fill(views.reshape(input, shape=(1,)), 0, index, value)
        return views.reshape(line, shape=())
    hits = el.cast(el.eq(index, index), dtype=np.dtype(np.float32))
    hits = prim.spread(hits, index, dim=0, shape=(input.shape[d],))
    mask = views.reshape(el.gt(hits, 0), shape=(-1, *(1,) * (input.ndim - d - 1)))
    return masked_fill(input, mask, value)


def take(input: Tensor, index: Tensor) -> Tensor:
    """Elements of the flattened input, in the shape of ``index``."""
    flat = views.reshape(as_input(input, "take"), shape=(-1,))
    index = bounded("take", index, 0, flat.shape[0], negative=True, types=INT64)
    return prim.take(flat, index, dim=0)


# --- masks -------------------------------------------------------------------------------------
def _bool_mask(where: str, mask: Tensor) -> Tensor:
    as_input(mask, where, "mask")
    if mask.meta()[1].kind != "b":
        given = f"{where}: expected BoolTensor for mask, but a mask of {mask.dtype!r} was given"
        raise DTypeError(f"{given}; {where} only supports boolean masks: use .bool()")
    return mask


def masked_fill(input: Tensor, mask: Tensor, value: Scalar) -> Tensor:
    """``value`` (a number or a 0-d tensor) where ``mask`` holds, ``input`` elsewhere."""
    mask = _bool_mask("masked_fill", mask)
    if isinstance(value, Tensor) and value.ndim:
        raise ShapeError(
            f"masked_fill: a value of shape {list(value.shape)} given; needed a number or a 0-d "
            "tensor; use where for more"
        )
    return el.where(mask, as_values(value, input.meta()[1]), input)


def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where ``mask`` (broadcast) holds, as one dimension."""
    mask = _bool_mask("masked_select", mask)
    shape = broadcast("masked_select", input.shape, mask.shape)
    flat = views.reshape(views.expand(input, shape=shape), shape=(-1,))
    if mask.__dict__.get("array").__class__ is DeviceArray:
        return masked(flat, views.reshape(views.expand(mask, shape=shape), shape=(-1,)))
    return masked(flat, np.broadcast_to(values_of(mask), shape).reshape(-1))


def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """A copy of ``input`` with the elements of ``source``, in order, where ``mask`` holds."""
    mask = _bool_mask("masked_scatter", mask)
    shape = broadcast("masked_scatter", input.shape, mask.shape)
    array = np.broadcast_to(values_of(mask), shape)
    n = int(array.sum())
    flat = views.reshape(source, shape=(-1,))
    if flat.shape[0] < n:
        raise ShapeError(
            f"masked_scatter: source has {flat.shape[0]} elements, the mask {n} places to fill"
        )
    values = views.getitem(flat, index=(slice(n),))
    return index_put(views.expand(input, shape=shape), (array,), values)


# --- whole numbers as results ------------------------------------------------------------------
def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """Where ``input`` is not zero: one row of indices per element, or a tensor per dimension."""
    if as_tuple:
        return nonzero_places(input)
    if input.__dict__.get("array").__class__ is DeviceArray and input.ndim:
        columns = [views.reshape(p, shape=(-1, 1)) for p in nonzero_places(input)]
        return views.cat(*columns, dim=1, sizes=(1,) * len(columns))
    return beside(input, np.argwhere(values_of(input)))


def argwhere(input: Tensor) -> Tensor:
    """``nonzero`` as one row of indices per element."""
    return nonzero(input)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Class numbers (...) as rows (..., C) of zeros with a one; -1: as many classes as needed."""
    index = integers("one_hot", tensor, INT64)
    if num_classes == -1:
        num_classes = int(values_of(index).max(initial=-1)) + 1
    index = bounded("one_hot", index, 0, num_classes)
    classes = constant(index, made(np.arange, num_classes, shape=(num_classes,)))
    hit = el.eq(views.reshape(index, shape=(*index.shape, 1)), classes)
    return el.cast(hit, dtype=np.dtype(np.int64))


def searchsorted(
    sorted_sequence: Tensor, input: Tensor | Number, *, out_int32: bool = False,
    right: bool = False, side: str | None = None, sorter: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Where each value would go to keep the last dimension of ``sorted_sequence`` in order."""
    side = side or ("right" if right else "left")
    kinds("searchsorted", "biufV", *(t for t in (sorted_sequence, input) if isinstance(t, Tensor)))
    if isinstance(input, Tensor) and sorted_sequence.dtype is input.dtype:
        kinds("searchsorted", "iufV", input)
    values = input if isinstance(input, Tensor) else beside(sorted_sequence, np.asarray(input))
    kind = np.dtype(np.int32 if out_int32 else np.int64)
    return gate(_search, (sorted_sequence, values, sorter), {"side": side, "kind": kind})


def _places(edges: Any, values: Any, sorter: Any, side: Side, kind: np.dtype) -> Any:
    if sorter is not None:
        edges = np.take_along_axis(edges, sorter, -1)
    if edges.ndim == 1:
        out = np.searchsorted(edges, values, side)
    else:
        if edges.shape[:-1] != values.shape[:-1]:
            raise ShapeError(
                f"searchsorted: sequences of shape {list(edges.shape)} and values of shape "
                f"{list(values.shape)} given; all but the last dimension must be equal"
            )
        rows = zip(edges.reshape(-1, edges.shape[-1]), values.reshape(-1, values.shape[-1]),
                   strict=True)  # fmt: skip
        out = np.array([np.searchsorted(e, v, side) for e, v in rows]).reshape(values.shape)
    return np.asarray(out, kind)


_search = Primitive("searchsorted", _places, ("edges", "values", "sorter"))
_search.batch = by_rows(lambda: _search)
_search.shape = lambda edges, values, sorter, side, kind: (values.shape, kind)


_COMPARED = 1 << 28  # comparisons at a time, on devices


def _places_on_device(
    platform: Any, edges: Any, values: Any, sorter: object, side: Side, kind: np.dtype
) -> Any:
    """The same by the array module, whose function takes one sequence of one type."""
    xp = platform.xp
    if not isinstance(values, platform.array_type):
        values = xp.full((), values)
    if sorter is not None:
        edges = xp.take_along_axis(edges, sorter, -1)
    edges, values = (a.astype(np.float32) if is_half(a.dtype) else a for a in (edges, values))
    common = np.result_type(edges.dtype, values.dtype)
    edges, values = edges.astype(common), values.astype(common)
    if edges.ndim == 1:
        return xp.searchsorted(edges, values, side).astype(kind)
    if edges.shape[:-1] != values.shape[:-1]:
        return _places(edges, values, None, side, kind)  # which says what is wrong
    n, m = edges.shape[-1], values.shape[-1]
    out = platform.empty(values.shape, kind)
    if not out.size:
        return out
    e, v, rows = edges.reshape(-1, 1, n), values.reshape(-1, m, 1), out.reshape(-1, m)
    step = max(1, _COMPARED // max(1, n * m))
    for first in range(0, len(e), step):  # edges before each value are counted; nan comes last
        part = slice(first, first + step)
        x, y = e[part], v[part]
        before = (x <= y) | (y != y) if side == "right" else (x < y) | ((x == x) & (y != y))
        rows[part] = xp.count_nonzero(before, axis=-1)
    return out


_search.on_device = _places_on_device


def bucketize(
    input: Tensor | Number, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """The number of the interval between ``boundaries`` that each value lies in."""
    if boundaries.ndim != 1:
        raise ShapeError(
            f"bucketize: boundaries of shape {list(boundaries.shape)} given; needed one dimension"
        )
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


def repeat_interleave(
    input: Tensor, repeats: Tensor | int | None = None, dim: int | None = None, *,
    output_size: int | None = None,
) -> Tensor:  # fmt: skip
    """Each element (or slice along ``dim``) ``repeats`` times in a row."""
    counted = input if repeats is None else repeats
    if isinstance(counted, Tensor) and (counted.ndim > 1 or counted.meta()[1].kind not in "iu"):
        what = f"repeats of {counted.dtype!r} and shape {list(counted.shape)} given"
        raise DTypeError(f"repeat_interleave: {what}; needed integers, of one dimension or none")
    if repeats is None:
        counts = values_of(input)
        return beside(input, np.repeat(np.arange(len(counts)), counts))
    if dim is None:
        input, dim = views.reshape(input, shape=(-1,)), 0
    d = one_dim(dim, input.ndim, "repeat_interleave")
    n = input.shape[d]
    if output_size is not None and isinstance(repeats, Tensor) and not repeats.is_cpu:
        return prim.take(input, _repeated(repeats, n, output_size), dim=d)
    if is_symbolic((n, repeats)) and not isinstance(repeats, (Tensor, list, tuple)):
        if repeats < 0:
            raise ShapeError(f"repeat_interleave: {repeats} given; repeats cannot be negative")
        total = n * repeats
        numbers = made(repeated_places, total, repeats, shape=(total,))
        return prim.take(input, wrap(numbers), dim=d)
    counts = values_of(repeats) if isinstance(repeats, Tensor) else np.asarray(repeats)
    if (counts < 0).any():
        raise ShapeError(
            f"repeat_interleave: {int(counts.min())} given; repeats cannot be negative"
        )
    if counts.size not in (1, n):
        raise ShapeError(
            f"repeat_interleave: {counts.size} repeats given for dimension {d} of size {n}; needed "
            f"1 or {n}"
        )
    if counts.size == 1:
        times = int(counts.item())
        places = made_beside(input, lambda xp: xp.arange(n * times) // max(times, 1))
    else:
        places = beside(input, np.repeat(np.arange(n), counts.reshape(-1)))
    return prim.take(input, places, dim=d)


def repeated_places(count: int, times: int) -> np.ndarray:
    """The numbers from 0 on, each ``times`` times, ``count`` in all."""
    return np.arange(count) // max(times, 1)


def _repeated(repeats: Tensor, n: int, total: int) -> Tensor:
    """Which of ``n`` places comes at each of ``total``, so that the host waits for nothing."""
    ends = cumsum(repeats.expand(n), dim=0)
    return searchsorted(ends, made_beside(repeats, lambda xp: xp.arange(total)), right=True)


__all__ = [
    "argwhere",
    "bucketize",
    "gather",
    "index_add",
    "index_copy",
    "index_fill",
    "index_get",
    "index_put",
    "index_select",
    "masked_fill",
    "masked_scatter",
    "masked_select",
    "nonzero",
    "one_hot",
    "repeat_interleave",
    "scatter",
    "scatter_add",
    "scatter_reduce",
    "searchsorted",
    "take",
    "take_along_dim",
]
