"""Reductions over segments: consecutive slices that belong together."""

from __future__ import annotations

import math
from typing import Any

from ....core.tensor import Tensor
from ....core.types import dtypes
from ....errors import ConfigError, DTypeError, ShapeError
from ...primitives import elementwise as el
from ..args import kinds
from ..args import tensor as as_input
from ..creation.create import arange, full
from ..gathering import index_add
from ..repeating import repeat_interleave
from ..special import index_reduce
from ..views.join import stack
from ..views.shapes import reshape
from ..views.split import narrow, select

# What a reduction begins with, and its name in ``index_reduce``.
_STARTS = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}
_REDUCED = {"prod": "prod", "max": "amax", "min": "amin"}
_SAME = {"amax": "max", "amin": "min"}


def segment_reduce(
    data: Tensor, reduce: str, *, lengths: Tensor | None = None, indices: Tensor | None = None,
    offsets: Tensor | None = None, axis: int = 0, unsafe: bool = False, initial: Any = None,
) -> Tensor:  # fmt: skip
    """``data`` (..., n, ...) reduced over segments of dimension ``axis``: as long as ``lengths``
    says, or from each of ``offsets`` to the next. ``lengths`` has the dimensions before ``axis``,
    too. ``reduce``: sum, mean, prod, max or min; ``initial`` takes part in each segment. What is
    behind the last segment is left out, which only ``unsafe`` allows."""
    kinds("segment_reduce", "fV", as_input(data, "segment_reduce", "data"))
    reduce = _SAME.get(reduce, reduce)
    if reduce not in _STARTS:
        raise ConfigError(
            f"segment_reduce: reduce={reduce!r} given; needed sum, prod, mean, max or min"
        )
    if indices is not None or (lengths is None) == (offsets is None):
        raise ConfigError("segment_reduce: needed either lengths or offsets, and no indices")
    if lengths is None:
        ends = narrow(offsets, axis, 1, offsets.shape[axis] - 1)  # type: ignore[union-attr,arg-type]
        lengths = ends - narrow(offsets, axis, 0, ends.shape[axis])  # type: ignore[arg-type]
    if lengths.dtype not in (dtypes.int32, dtypes.int64):
        raise DTypeError(f"segment_reduce: lengths of {lengths.dtype!r} given; needed integers")
    if lengths.ndim != axis + 1 or tuple(lengths.shape[:axis]) != tuple(data.shape[:axis]):
        raise ShapeError(
            f"segment_reduce: lengths of shape {list(lengths.shape)} given for data of "
            f"{list(data.shape)} and axis={axis}; needed {[*data.shape[:axis], 'segments']}"
        )
    return _rows(data, lengths, axis, reduce, unsafe, initial)


def _rows(
    data: Tensor, lengths: Tensor, axis: int, reduce: str, unsafe: bool, initial: Any
) -> Tensor:
    if axis:
        rows = [
            _rows(select(data, 0, i), select(lengths, 0, i), axis - 1, reduce, unsafe, initial)
            for i in range(data.shape[0])
        ]
        return stack(rows, 0)
    count, total = lengths.shape[0], int(lengths.sum())
    if total != data.shape[0] and not (unsafe and total < data.shape[0]):
        raise ShapeError(
            f"segment_reduce: lengths of {total} in all given for {data.shape[0]} slices: Expected "
            "all rows of lengths along axis to sum to data.size(lengths.dim()-1) when !unsafe."
        )
    data = data if total == data.shape[0] else narrow(data, 0, 0, total)
    index = repeat_interleave(arange(count, device=data.device), lengths)
    start = _STARTS[reduce] if initial is None else initial
    empty = full((count, *data.shape[1:]), start, dtype=data.dtype, device=data.device)
    if reduce in _REDUCED:
        return index_reduce(empty, 0, index, data, _REDUCED[reduce], include_self=True)
    out = index_add(empty, 0, index, data)
    if reduce == "sum":
        return out
    counts = reshape(lengths, (count, *(1,) * (data.ndim - 1)))
    return el.div(out, counts if initial is None else el.where(el.eq(counts, 0), 1, counts))


__all__ = ["segment_reduce"]
