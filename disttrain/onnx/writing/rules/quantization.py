"""Numbers on grids of integers, and products of such: ``QuantizeLinear``, ``DequantizeLinear`` and
products of what these give, which runtimes join; ``DynamicQuantizeLinear`` and ``MatMulInteger``
where the grid is that of what is there."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..types import FLOAT, Ref, Unmapped, is_number, same_shape
from ..writer import RULES, Writer, rule

INT8, UINT8, INT32 = np.dtype(np.int8), np.dtype(np.uint8), np.dtype(np.int32)


def _axis(shape: tuple | None, rank: int) -> int | None:
    """Along which dimension of ``rank`` a grid differs; -1 where it is one for all, None where it
    differs along several."""
    if shape is None:
        return None
    wide = [i for i, n in enumerate(shape) if not (is_number(n) and int(n) == 1)]
    return None if len(wide) > 1 else wide[0] + rank - len(shape) if wide else -1


def _grid(w: Writer, x: Ref, scale: Ref, zero: Ref, dtype: Any) -> tuple | None:
    """(scale, zero, axis) as the operators take them."""
    rank = len(w.outs[0].shape)
    axes = {_axis(a.shape, rank) for a in (scale, zero)}
    if None in axes or zero.dtype.kind == "f" or not same_shape(w.outs[0].shape, x.shape or ()):
        return None
    axis = max(a for a in axes if a is not None)
    if len(axes - {-1}) > 1:
        return None
    shape = () if axis < 0 else ((x.shape or ())[axis],)
    parts = []
    for a in (scale, w.cast(zero, dtype)):
        single = axis >= 0 and _axis(a.shape, rank) == -1
        flat = w.reshape(a, (1,) if single else shape)
        parts.append(w.expand(flat, shape) if single else flat)
    return (*parts, None if axis < 0 else axis)


def _fits(low: int, high: int, dtype: Any) -> bool:
    limits = np.iinfo(dtype)
    return limits.min <= low <= high <= limits.max


def _levels(w: Writer, x: Ref, scale: Ref, zero: Ref, low: int, high: int) -> Ref:
    """The nearest numbers of the grid, as floating-point numbers."""
    steps = w.node("Mul", x, w.node("Reciprocal", scale))
    zero_is_float = zero.dtype.kind == "f"
    shift = w.cast(zero, x.dtype)
    if zero_is_float:
        level = w.node("Round", w.node("Add", steps, shift))
    else:
        level = w.node("Add", w.node("Round", steps), shift)
    return w.node("Clip", level, w.constant(low, x.dtype), w.constant(high, x.dtype))


@rule("quantize")
def _quantize(w: Writer, x: Ref, scale: Ref, zero: Ref, low: int, high: int, dtype: Any) -> Ref:
    kind = np.dtype(dtype)
    grid = _grid(w, x, scale, zero, kind) if kind in (INT8, UINT8) else None
    if grid is None or x.dtype != scale.dtype:
        return w.cast(_levels(w, x, scale, zero, low, high), kind)
    out = w.node("QuantizeLinear", x, grid[0], grid[1], dtype=kind, axis=grid[2])
    limits = np.iinfo(kind)
    if (low, high) == (limits.min, limits.max):
        return out
    return w.node("Clip", out, w.constant(low, kind), w.constant(high, kind))


@rule("dequantize")
def _dequantize(w: Writer, q: Ref, scale: Ref, zero: Ref) -> Ref:
    grid = _grid(w, q, scale, zero, q.dtype) if q.dtype in (INT8, UINT8) else None
    if grid is None:
        shifted = w.node("Sub", w.cast(q, scale.dtype), w.cast(zero, scale.dtype))
        return w.node("Mul", shifted, scale)
    return w.node("DequantizeLinear", q, grid[0], grid[1], dtype=scale.dtype, axis=grid[2])


@rule("fake_quantize")
def _fake_quantize(w: Writer, x: Ref, scale: Ref, zero: Ref, low: int, high: int) -> Ref:
    """Onto the grid and back."""
    kind = next((k for k in (INT8, UINT8) if _fits(low, high, k)), None)
    if kind is None or x.dtype != scale.dtype or zero.dtype.kind == "f":
        level = _levels(w, x, scale, zero, low, high)
        return w.node("Mul", w.node("Sub", level, w.cast(zero, x.dtype)), scale)
    limits = np.iinfo(kind)
    q = _quantize(w, x, scale, zero, int(limits.min), int(limits.max), kind)
    out = _dequantize(w, Ref(q.name, kind, x.shape), scale, zero)
    if (low, high) == (limits.min, limits.max):
        return out
    # Numbers are cut off, not integers: runtimes take QuantizeLinear and DequantizeLinear together.
    shift = w.cast(zero, scale.dtype)
    ends = [
        w.node("Mul", w.node("Sub", w.constant(n, scale.dtype), shift), scale) for n in (low, high)
    ]
    return w.node("Min", w.node("Max", out, ends[0]), ends[1])


# --- products ----------------------------------------------------------------------------------
def _weight(w: Writer, weight: Ref, scale: Ref) -> Ref:
    """Integer weights as numbers, each row by its scale."""
    n = (weight.shape or ())[0]
    scales = w.cast(scale, FLOAT)
    single = not scales.rank or same_shape(scales.shape or (), (1,))
    axis = None if single else 0
    scales = w.reshape(scales, () if single else (n,))
    made = w.node("DequantizeLinear", weight, scales, dtype=FLOAT, axis=axis)
    return Ref(made.name, FLOAT, weight.shape)


def _given(w: Writer, x: Ref, scale: float, zero: int) -> Ref:
    grid = w.constant(scale, FLOAT), w.constant(zero, x.dtype)
    made = w.node("DequantizeLinear", x, *grid, dtype=FLOAT)
    return Ref(made.name, FLOAT, x.shape)


@rule("weight_int8_linear")
def _weight_linear(w: Writer, x: Ref, weight: Ref, scale: Ref, b: Ref | None = None) -> Ref:
    if x.dtype != FLOAT:
        raise Unmapped(f"int8 weights for numbers of type {x.dtype}")
    return RULES["linear"](w, x, _weight(w, weight, scale), b)


@rule("integer_linear")
def _integer_linear(
    w: Writer, x: Ref, weight: Ref, scale: Ref, sums: Ref | None = None, b: Ref | None = None, *,
    x_scale: float, x_zero: int,
) -> Ref:  # fmt: skip
    given = _given(w, x, x_scale, x_zero)
    return RULES["linear"](w, given, _weight(w, weight, scale), b)


@rule("integer_conv")
def _integer_conv(
    w: Writer, x: Ref, weight: Ref, scale: Ref, b: Ref | None = None, *, x_scale: float,
    x_zero: int, **how: Any,
) -> Ref:  # fmt: skip
    given = _given(w, x, x_scale, x_zero)
    return RULES["conv"](w, given, _weight(w, weight, scale), b, **how)


@rule("dynamic_linear")
def _dynamic_linear(
    w: Writer, x: Ref, weight: Ref, scale: Ref, sums: Ref | None = None, b: Ref | None = None, *,
    own: int, symmetric: bool, low: int, high: int,
) -> Ref:  # fmt: skip
    """By a grid from the range of x: of all of it, or of each part that its first dimensions
    have."""
    x = w.cast(x, FLOAT)
    turned = w.transpose(weight, (1, 0))
    if own == 0 and not symmetric and (low, high) == (0, 255):
        q, x_scale, zero = w.node("DynamicQuantizeLinear", x, outputs=3)
        product = w.node("MatMulInteger", q, turned, zero, dtype=INT32)
        found = w.cast(product, FLOAT)
    else:
        x_scale, shift = _range(w, x, own, symmetric, low, high)
        level = _levels(w, x, x_scale, shift, low, high)
        found = w.node("MatMul", w.node("Sub", level, shift), w.cast(turned, FLOAT))
    out = w.node("Mul", found, w.node("Mul", x_scale, w.cast(scale, FLOAT)))
    return out if b is None else w.node("Add", out, b)


def _range(w: Writer, x: Ref, own: int, symmetric: bool, low: int, high: int) -> tuple[Ref, Ref]:
    """(scale, zero) as floating-point numbers, against x."""
    dims, zero = tuple(range(own, x.rank)), w.constant(0, FLOAT)
    least = w.node("Min", w.reduce("ReduceMin", x, dims, True), zero)
    most = w.node("Max", w.reduce("ReduceMax", x, dims, True), zero)
    if symmetric:
        size = w.node("Max", most, w.node("Neg", least))
        scale = w.node("Div", size, w.constant(high, FLOAT))
        return w.node("Max", scale, w.constant(1e-5, FLOAT)), zero
    width = w.node("Sub", most, least)
    scale = w.node("Div", width, w.constant(high - low, FLOAT))
    none = w.node("Less", scale, w.constant(2.0**-126, FLOAT), dtype=np.dtype(bool))
    scale = w.where(none, 0.1, scale, FLOAT)
    below = w.node("Sub", w.constant(low, FLOAT), w.node("Div", least, scale))
    shift = w.node("Round", below)
    return scale, w.node("Clip", shift, w.constant(low, FLOAT), w.constant(high, FLOAT))
