"""``lax``'s reductions, running totals, sorts, and the largest of many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....arrays import ranking, windows
from ....core.tensor import Tensor
from ....core.types import dtypes
from ....ops import api as ops
from ..array import Array, wrap
from ..numpy.lifting import cast
from ..transforms import as_array
from ..types import asked as canonical
from .elementwise import accepts, value_of
from .products import padtype_to_pads
from .staged import leaves_of, registry



_TAKES = {"sum": "ifc", "prod": "ifc", "max": "bifc", "min": "bifc", "and": "bi", "or": "bi", "xor": "bi"}


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


def _axes(name: str, axes: Sequence[int], a: Array) -> tuple[int, ...]:
    dims = tuple(int(d) for d in axes)
    if len(set(dims)) != len(dims):
        raise ValueError(f"duplicate value in 'axes' of reduction: {dims}")
    if not all(0 <= d < a.ndim for d in dims):
        raise ValueError(f"reduction axes {dims} contains out-of-bounds indices for {a.shape}.")
    return dims


def _reducer(name: str) -> Callable:
    short = name.partition("_")[2]

    def run(operand: Any, axes: Sequence[int], *, out_sharding: Any = None) -> Array:
        a = value_of(name, operand)
        accepts(name, a.dtype, _TAKES[short])
        dims = _axes(name, axes, a)
        value = a._value
        if short == "sum":
            out = ops.sum(value, dims, dtype=value.dtype) if dims else value
        elif short in ("max", "min") and a.dtype.kind != "c" and dims and value.numel():
            out = (ops.amax if short == "max" else ops.amin)(value, dims)
        else:
            out = windows.reduce(value, _start(short, a.dtype), _combined(short, a.dtype), dims)
        return wrap(out, a.weak_type)

    run.__name__ = run.__qualname__ = name
    run.__module__, run.__doc__ = "jax.lax", f"XLA's {name} along ``axes``."
    return run


def _combined(name: str, kind: np.dtype) -> Callable:
    if kind.kind == "b":
        table = {"max": ops.logical_or, "min": ops.logical_and}
        return table.get(name, _COMBINE[name])
    return _COMBINE[name]


def _arg(name: str) -> Callable:
    fn = getattr(ops, name)

    def run(operand: Any, axis: int, index_dtype: Any) -> Array:
        a = value_of(name, operand)
        (d,) = _axes(name, (axis,), a)
        value = a._value.to(dtypes.int32) if a.dtype.kind == "b" else a._value
        return wrap(fn(value, d).to(dtypes.of(canonical(index_dtype))))

    run.__name__ = run.__qualname__ = name
    run.__module__, run.__doc__ = "jax.lax", f"The places of the {name[3:]}ima."
    return run


def reduce(  # noqa: D417
    operands: Any, init_values: Any, computation: Callable, dimensions: Sequence[int],
    out_sharding: Any = None,
) -> Any:  # fmt: skip
    """``computation`` of ``init_values`` and of all elements along ``dimensions``."""
    return _over(
        operands, init_values, computation,
        lambda parts, starts, combine, a: ranking.reduce_together(
            parts, starts, combine, _axes("reduce", dimensions, a)
        ),
    )  # fmt: skip


def _over(operands: Any, init_values: Any, computation: Callable, make: Callable) -> Any:
    """``make`` of lists of tensors, where operands are trees."""
    given, starts = leaves_of(operands), leaves_of(init_values)
    if given.form != starts.form:
        raise ValueError("Operands must have the same tree structure as init_values: "
                         f"{given.form} vs. {starts.form}")  # fmt: skip

    def combine(a: list, b: list) -> list:
        one, two = (given.form.build(iter([wrap(t) for t in part])) for part in (a, b))
        return [as_array(x)._value for x in registry.flatten(computation(one, two))[0]]

    begin = [cast(s._value, a.dtype) for s, a in zip(starts.arrays, given.arrays, strict=True)]
    outs = make(given.tensors, begin, combine, given.arrays[0])
    pairs = zip(outs, given.arrays, starts.arrays, strict=True)
    return given.form.build(iter([wrap(o, a.weak_type and s.weak_type) for o, a, s in pairs]))


def reduce_window(
    operand: Any, init_value: Any, computation: Callable, window_dimensions: Sequence[int],
    window_strides: Any = None, padding: Any = "VALID", base_dilation: Any = None,
    window_dilation: Any = None,
) -> Any:  # fmt: skip
    """``computation`` of ``init_value`` and of all elements of each window."""
    sizes = tuple(int(n) for n in window_dimensions)
    strides, gaps, holes = (
        (1,) * len(sizes) if d is None else tuple(d)
        for d in (window_strides, base_dilation, window_dilation)
    )

    def make(parts: list, starts: list, combine: Callable, a: Array) -> list:
        pads = padding
        if isinstance(pads, str):
            wide = [max(n - 1, 0) * g + min(n, 1) for n, g in zip(a.shape, gaps, strict=True)]
            window = [(k - 1) * h + 1 for k, h in zip(sizes, holes, strict=True)]
            pads = padtype_to_pads(wide, window, strides, pads)
        how = (sizes, strides, [tuple(p) for p in pads], gaps, holes)
        if len(parts) > 1:
            raise NotImplementedError("reduce_window of several operands")
        lone = lambda x, y: combine([x], [y])[0]
        return [windows.reduce_window(parts[0], starts[0], lone, *how)]

    return _over(operand, init_value, computation, make)


def _running(name: str, fn: Callable, takes: str = "iufcVb") -> Callable:
    def run(operand: Any, axis: int = 0, reverse: bool = False) -> Array:
        a = value_of(name, operand)
        if axis < 0:
            raise ValueError(f"axis {axis} must be non-negative")
        if axis >= a.ndim:
            raise ValueError(
                f"axis {axis} is out of bounds for array of shape {a.shape}"
            )  # fmt: skip
        if a.dtype.kind not in takes:
            raise TypeError(f"{name} does not accept dtype {a.dtype.name}.")
        value = ops.flip(a._value, axis) if reverse else a._value
        out = fn(value, axis)
        return wrap(ops.flip(out, axis) if reverse else out, a.weak_type)

    run.__name__ = run.__qualname__ = name
    run.__module__, run.__doc__ = "jax.lax", f"XLA's {name} along ``axis``."
    return run


def sort(operand: Any, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> Any:
    """The elements along ``dimension`` in order; several operands go by the first ``num_keys``."""
    many = isinstance(operand, (list, tuple))
    arrays = [value_of("sort", x, i) for i, x in enumerate(operand if many else [operand])]
    if many and not arrays:
        raise TypeError("Sort requires at least one operand")
    if not 1 <= num_keys <= len(arrays):
        raise ValueError(f"{num_keys=} must be between 1 and len(operand)={len(arrays)}")
    if any(a.shape != arrays[0].shape for a in arrays):
        raise TypeError(
            f"Arguments to sort must have equal shapes, got: {' '.join(str(a.shape) for a in arrays)}"
        )
    if not -arrays[0].ndim <= dimension < arrays[0].ndim:
        raise ValueError(
            f"axis {dimension} is out of bounds for array of dimension {arrays[0].ndim}"
        )
    outs = ranking.sort([a._value for a in arrays], dimension % arrays[0].ndim, num_keys)
    found = tuple(wrap(o, a.weak_type) for o, a in zip(outs, arrays, strict=True))
    return found if many else found[0]


def sort_key_val(
    keys: Any, values: Any, dimension: int = -1, is_stable: bool = True
) -> tuple[Array, Array]:
    """``keys`` in order, and ``values`` in that order."""
    return sort((keys, values), dimension, is_stable)


def top_k(operand: Any, k: int, *, axis: int = -1) -> tuple[Array, Array]:
    """(The ``k`` largest along ``axis``, their places)."""
    a = value_of("top_k", operand)
    if k < 0:
        raise ValueError(f"k argument to top_k must be nonnegative, got {k}")
    if not -a.ndim <= axis < a.ndim:
        raise ValueError(f"axis {axis} is out of bounds for array of dimension {a.ndim}")
    if k > a.shape[axis]:
        raise ValueError(
            "k argument to top_k must be no larger than size along axis; got "
            f"k={k} with shape={a.shape} and axis={axis % a.ndim}"
        )
    values, at = ranking.top_k(a._value, k, axis % a.ndim)
    return wrap(values), wrap(at.to(dtypes.int32))


def _approximate(largest: bool) -> Callable:
    def run(
        operand: Any, k: int, reduction_dimension: int = -1, recall_target: float = 0.95,
        reduction_input_size_override: int = -1, aggregate_to_topk: bool = True,
    ) -> tuple[Array, Array]:  # fmt: skip
        """(The k best along a dimension, their places); here exactly."""
        a = value_of("approx_top_k", operand)
        values, at = top_k(a if largest else wrap(-a._value), k, axis=reduction_dimension)
        return (values if largest else wrap(-values._value)), at

    run.__name__ = run.__qualname__ = "approx_max_k" if largest else "approx_min_k"
    run.__module__ = "jax.lax"
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
