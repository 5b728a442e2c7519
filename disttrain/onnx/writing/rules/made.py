"""Tensors that are made of sizes: one number everywhere, and numbers at even distances."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....export import vocabulary
from ....export.sizes import sizes_in
from ..types import INT64, Ref, Unmapped, is_number, static
from ..writer import Writer, rule


@rule("full")
def _full(w: Writer, shape: tuple, value: Any, dtype: Any, order: Any = None) -> Ref:
    if static(shape) and is_number_or_flag(value):
        return w.full(shape, value, dtype)
    return w.expand(w.cast(w.operand(value, dtype), dtype), shape)


def is_number_or_flag(value: Any) -> bool:
    """Whether a fill is a number itself, and not a size."""
    return isinstance(value, (bool, int, float, np.generic))


@rule("arange")
def _arange(w: Writer, start: Any, count: Any, step: Any, dtype: Any) -> Ref:
    if all(map(is_number, (count,))) and all(map(is_number_or_flag, (start, step))):
        array = vocabulary.MAKERS["arange"].forward(
            start=start, count=int(count), step=step, dtype=dtype
        )
        return w.constant(array)
    numbers = w.node("Range", w.constant(0, INT64), w.size(count), w.constant(1, INT64))
    if step != 1:
        kind = INT64 if np.dtype(dtype).kind in "iu" else dtype
        numbers = w.node("Mul", w.cast(numbers, kind), w.operand(step, kind))
    if not (is_number(start) and start == 0):
        kind = INT64 if np.dtype(dtype).kind in "iu" else dtype
        numbers = w.node("Add", w.cast(numbers, kind), w.operand(start, kind))
    return w.cast(numbers, dtype)


@rule("even_numbers")
def _even_numbers(w: Writer, start: Any, end: Any, count: Any, dtype: Any, base: Any) -> Ref:
    if not all(map(is_number_or_flag, (start, end, count))):
        raise Unmapped("numbers at even distances, whose number depends on the input")
    array = vocabulary.MAKERS["even_numbers"].forward(
        start=start, end=end, count=int(count), dtype=dtype, base=base
    )
    return w.constant(array)


@rule("weights")
def _weights(w: Writer, of: str, given: tuple, dtype: Any) -> Ref:
    """The matrix that resizes a dimension. Of sizes that may change it is never made: what uses it
    is a ``Resize``, or is told."""
    if not sizes_in(given):
        make = vocabulary.MAKERS["weights"].forward
        return w.constant(make(of=of, given=given, dtype=dtype))
    made = Ref(w.fresh("weights"), np.dtype(dtype))
    w.unmade[made.name] = "resizing in this way, of sizes that depend on the input"
    return made
