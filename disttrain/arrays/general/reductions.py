"""Reductions, running totals, sorts and the largest of many, as XLA's vocabulary has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core.tensor import Tensor
from ...core.types import dtypes
from ...errors import ModeError, OperandError, ShapeError
from ...ops import api as ops
from . import ranking, windows
from .checks import accepts, cast, kind_of
from .convolutions import padtype_to_pads

Tensors = Sequence[Tensor]
_TAKES = {
    "sum": "ifc",
    "prod": "ifc",
    "max": "bifc",
    "min": "bifc",
    "and": "bi",
    "or": "bi",
    "xor": "bi",
}


def _extreme(kind: np.dtype, least: bool) -> Any:
    if kind.kind in "fV":
        return float("-inf") if least else float("inf")
    if kind.kind == "b":
        return not least
    info = np.iinfo(kind)
    return int(info.min if least else info.max)


def _neutral(name: str, kind: np.dtype) -> Any:
    return {
        "sum": 0, "add": 0, "prod": 1, "mul": 1, "or": 0, "bitwise_or": 0, "xor": 0,
        "bitwise_xor": 0, "and": True if kind.kind == "b" else -1,
        "bitwise_and": True if kind.kind == "b" else -1,
        "max": None, "min": None,
    }[name]  # fmt: skip


def _start(name: str, kind: np.dtype) -> Tensor:
    value = _neutral(name, kind)
    value = _extreme(kind, name == "max") if value is None else value
    if value == -1 and kind.kind == "u":
        value = int(np.iinfo(kind).max)
    return ops.full((), value, dtype=dtypes.of(kind))


_COMBINE: dict[str, Callable] = {
    "sum": ops.add, "prod": ops.mul, "max": ops.maximum, "min": ops.minimum,
    "and": ops.bitwise_and, "or": ops.bitwise_or, "xor": ops.bitwise_xor,
}  # fmt: skip


def _axes(name: str, axes: Sequence[int], a: Tensor) -> tuple[int, ...]:
    dims = tuple(int(d) for d in axes)
    if len(set(dims)) != len(dims):
        raise ShapeError(f"duplicate value in 'axes' of reduction: {dims}")
    if not all(0 <= d < a.ndim for d in dims):
        raise ShapeError(
            f"reduction axes {dims} contains out-of-bounds indices for {tuple(a.shape)}."
        )
    return dims


def _reducer(name: str) -> Callable:
    short = name.partition("_")[2]

    def run(operand: Tensor, axes: Sequence[int], *, out_sharding: Any = None) -> Tensor:
        a = operand
        accepts(name, kind_of(a), _TAKES[short])
        dims = _axes(name, axes, a)
        value = a
        if short == "sum":
            out = ops.sum(value, dims, dtype=value.dtype) if dims else value
        elif short in ("max", "min") and kind_of(a).kind != "c" and dims and value.numel():
            out = (ops.amax if short == "max" else ops.amin)(value, dims)
        else:
            out = windows.reduce(
                value, _start(short, kind_of(a)), _combined(short, kind_of(a)), dims
            )
        return out

    run.__name__ = run.__qualname__ = name
    run.__module__, run.__doc__ = __name__, f"XLA's {name} along ``axes``."
    return run


def _combined(name: str, kind: np.dtype) -> Callable:
    if kind.kind == "b":
        table = {"max": ops.logical_or, "min": ops.logical_and}
        return table.get(name, _COMBINE[name])
    return _COMBINE[name]


def _arg(name: str) -> Callable:
    fn = getattr(ops, name)

    def run(operand: Tensor, axis: int, index_dtype: Any) -> Tensor:
        a = operand
        (d,) = _axes(name, (axis,), a)
        value = a.to(dtypes.int32) if kind_of(a).kind == "b" else a
        return fn(value, d).to(dtypes.of(np.dtype(index_dtype)))

    run.__name__ = run.__qualname__ = name
    run.__module__, run.__doc__ = __name__, f"The places of the {name[3:]}ima."
    return run


def reduce(
    operands: Tensors, init_values: Tensors, computation: Callable, dimensions: Sequence[int]
) -> list[Tensor]:
    """``computation`` (of two lists of tensors) of ``init_values`` and of all elements of
    ``operands`` along ``dimensions``."""
    dims = _axes("reduce", dimensions, operands[0])
    return ranking.reduce_together(list(operands), _begin(operands, init_values), computation, dims)


def _begin(operands: Tensors, init_values: Tensors) -> list[Tensor]:
    return [cast(s, kind_of(a)) for s, a in zip(init_values, operands, strict=True)]


def reduce_window(
    operands: Tensors, init_values: Tensors, computation: Callable,
    window_dimensions: Sequence[int], window_strides: Any = None, padding: Any = "VALID",
    base_dilation: Any = None, window_dilation: Any = None,
) -> list[Tensor]:  # fmt: skip
    """``computation`` of ``init_values`` and of all elements of each window."""
    sizes = tuple(int(n) for n in window_dimensions)
    strides, gaps, holes = (
        (1,) * len(sizes) if d is None else tuple(d)
        for d in (window_strides, base_dilation, window_dilation)
    )
    if isinstance(padding, str):
        shape = tuple(operands[0].shape)
        wide = [max(n - 1, 0) * g + min(n, 1) for n, g in zip(shape, gaps, strict=True)]
        window = [(k - 1) * h + 1 for k, h in zip(sizes, holes, strict=True)]
        padding = padtype_to_pads(wide, window, strides, padding)
    pads = [tuple(p) for p in padding]
    if len(operands) > 1:
        raise ModeError("reduce_window: several operands given; one is needed")

    def combine(x: Tensor, y: Tensor) -> Tensor:
        return computation([x], [y])[0]

    (start,) = _begin(operands, init_values)
    return [windows.reduce_window(operands[0], start, combine, sizes, strides, pads, gaps, holes)]


def _running(name: str, fn: Callable, takes: str = "iufcVb") -> Callable:
    def run(operand: Tensor, axis: int = 0, reverse: bool = False) -> Tensor:
        a = operand
        if axis < 0:
            raise ShapeError(f"axis {axis} must be non-negative")
        if axis >= a.ndim:
            raise ShapeError(
                f"axis {axis} is out of bounds for array of shape {tuple(a.shape)}"
            )  # fmt: skip
        if kind_of(a).kind not in takes:
            raise OperandError(f"{name} does not accept dtype {kind_of(a).name}.")
        value = ops.flip(a, axis) if reverse else a
        out = fn(value, axis)
        return ops.flip(out, axis) if reverse else out

    run.__name__ = run.__qualname__ = name
    run.__module__, run.__doc__ = __name__, f"XLA's {name} along ``axis``."
    return run


def sort(
    operand: Tensor | Tensors, dimension: int = -1, is_stable: bool = True, num_keys: int = 1
) -> Any:
    """The elements along ``dimension`` in order; several operands go by the first ``num_keys``."""
    many = isinstance(operand, (list, tuple))
    arrays: list[Any] = list(operand) if many else [operand]
    if many and not arrays:
        raise OperandError("Sort requires at least one operand")
    if not 1 <= num_keys <= len(arrays):
        raise ShapeError(f"{num_keys=} must be between 1 and len(operand)={len(arrays)}")
    if any(tuple(a.shape) != tuple(arrays[0].shape) for a in arrays):
        raise OperandError(
            "Arguments to sort must have equal shapes, got: "
            f"{' '.join(str(tuple(a.shape)) for a in arrays)}"
        )
    if not -arrays[0].ndim <= dimension < arrays[0].ndim:
        raise ShapeError(
            f"axis {dimension} is out of bounds for array of dimension {arrays[0].ndim}"
        )
    outs = ranking.sort(arrays, dimension % arrays[0].ndim, num_keys)
    return tuple(outs) if many else outs[0]


def sort_key_val(
    keys: Tensor, values: Tensor, dimension: int = -1, is_stable: bool = True
) -> tuple[Tensor, Tensor]:
    """``keys`` in order, and ``values`` in that order."""
    return sort((keys, values), dimension, is_stable)


def top_k(operand: Tensor, k: int, *, axis: int = -1) -> tuple[Tensor, Tensor]:
    """(The ``k`` largest along ``axis``, their places)."""
    a = operand
    if k < 0:
        raise ShapeError(f"k argument to top_k must be nonnegative, got {k}")
    if not -a.ndim <= axis < a.ndim:
        raise ShapeError(f"axis {axis} is out of bounds for array of dimension {a.ndim}")
    if k > tuple(a.shape)[axis]:
        raise ShapeError(
            "k argument to top_k must be no larger than size along axis; got "
            f"k={k} with shape={tuple(a.shape)} and axis={axis % a.ndim}"
        )
    values, at = ranking.top_k(a, k, axis % a.ndim)
    return values, at.to(dtypes.int32)


def _approximate(largest: bool) -> Callable:
    def run(
        operand: Tensor, k: int, reduction_dimension: int = -1, recall_target: float = 0.95,
        reduction_input_size_override: int = -1, aggregate_to_topk: bool = True,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """(The k best along a dimension, their places); here exactly."""
        a = operand
        values, at = top_k(a if largest else -a, k, axis=reduction_dimension)
        return (values if largest else -values), at

    run.__name__ = run.__qualname__ = "approx_max_k" if largest else "approx_min_k"
    run.__module__ = __name__
    return run


NAMES: dict[str, Any] = {
    **{name: _reducer(name) for name in (
        "reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or",
        "reduce_xor")},
    **{name: _arg(name) for name in ("argmax", "argmin")},
    "cumsum": _running("cumsum", lambda t, d: ops.cumsum(t, d, dtype=t.dtype)),
    "cumprod": _running("cumprod", lambda t, d: ops.cumprod(t, d, dtype=t.dtype)),
    "cummax": _running("cummax", lambda t, d: ops.cummax(t, d)[0]),
    "cummin": _running("cummin", lambda t, d: ops.cummin(t, d)[0]),
    "cumlogsumexp": _running("cumlogsumexp", ops.logcumsumexp, "fVc"),
    "approx_max_k": _approximate(True), "approx_min_k": _approximate(False),
    "reduce": reduce, "reduce_window": reduce_window, "sort": sort, "sort_key_val": sort_key_val,
    "top_k": top_k,
}  # fmt: skip
