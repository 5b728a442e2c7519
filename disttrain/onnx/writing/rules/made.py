"""Tensors that are made of sizes: one number everywhere, and numbers at even distances."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....export import vocabulary
from ....export.sizes import sizes_in
from ..types import INT64, Ref, computed, is_number, static
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
        return w.cast(_even(w, start, end, count, base), dtype)
    array = vocabulary.MAKERS["even_numbers"].forward(
        start=start, end=end, count=int(count), dtype=dtype, base=base
    )
    return w.constant(array)


def _even(w: Writer, start: Any, end: Any, count: Any, base: Any) -> Ref:
    kind = np.dtype(np.float64)
    first, last = (w.cast(w.operand(n, kind), kind) for n in (start, end))
    n = w.size(count)
    gaps = w.node("Max", w.node("Sub", n, _int(w, 1)), _int(w, 1))
    i = w.node("Range", _int(w, 0), n, _int(w, 1))
    step = w.node("Div", w.node("Sub", last, first), w.cast(gaps, kind))
    found = w.node("Add", w.node("Mul", w.cast(i, kind), step), first)
    found = w.where(w.node("Equal", i, gaps, dtype=bool), last, found, kind)
    return found if base is None else w.node("Pow", w.operand(base, kind), found)


@rule("numbers")
def _numbers(w: Writer, shape: tuple, items: tuple, dtype: Any) -> Ref:
    each = [w.constant(n) if is_number_or_flag(n) else w.size(n) for n in items]
    kind = INT64 if all(a.dtype == INT64 for a in each) else np.dtype(np.float64)
    row = [w.unsqueeze(w.cast(a, kind), (0,)) for a in each]
    made = Ref(w.node("Concat", *row, axis=0).name, kind, (len(items),))
    return w.cast(w.reshape(made, shape), dtype)


@rule("eye")
def _eye(w: Writer, shape: tuple, dtype: Any) -> Ref:
    if static(shape):
        return w.constant(np.eye(*map(int, shape), dtype=dtype))
    rows, columns = (w.node("Range", _int(w, 0), w.size(n), _int(w, 1)) for n in shape)
    return w.cast(w.node("Equal", w.unsqueeze(rows, (1,)), columns, dtype=bool), dtype)


@rule("numbered")
def _numbered(w: Writer, shape: tuple, dtype: Any) -> Ref:
    """Numbers from 0 on, in this shape."""
    if static(shape):
        return w.constant(np.arange(math.prod(map(int, shape)), dtype=dtype).reshape(shape))
    count = w.size(shape[0])
    for n in shape[1:]:
        count = w.node("Mul", count, w.size(n))
    return w.cast(w.reshape(w.node("Range", _int(w, 0), count, _int(w, 1)), shape), dtype)


@rule("weights")
def _weights(w: Writer, of: str, given: tuple, dtype: Any) -> Ref:
    """The matrix that resizes a dimension. Of sizes that may change it is never made: what uses it
    is a ``Resize``, or is told."""
    if not sizes_in(given):
        make = vocabulary.MAKERS["weights"].forward
        return w.constant(make(of=of, given=given, dtype=dtype))
    if of == "area":
        return w.cast(_areas(w, *given), dtype)
    made = Ref(w.fresh("weights"), np.dtype(dtype))
    w.unmade[made.name] = "resizing in this way, of sizes that depend on the input"
    return made


def _areas(w: Writer, size: Any, out: Any) -> Ref:
    """(old places, new ones): of each new one the mean of the old ones that it covers."""
    old, new = w.size(size), w.size(out)
    places, i = (w.node("Range", _int(w, 0), n, _int(w, 1)) for n in (old, new))
    one = _int(w, 1)
    low = w.node("Div", w.node("Mul", i, old), new)
    high = w.node("Mul", w.node("Add", i, one), old)
    high = w.node("Div", w.node("Add", high, w.node("Sub", new, one)), new)
    places = w.unsqueeze(places, (1,))
    behind = w.node("GreaterOrEqual", places, low, dtype=bool)
    before = w.node("Less", places, high, dtype=bool)
    among = w.cast(w.node("And", behind, before, dtype=bool), np.float64)
    return w.node("Div", among, w.cast(w.node("Sub", high, low), np.float64))  # type: ignore[no-any-return]


def _int(w: Writer, n: int) -> Ref:
    return w.constant(n, INT64)


# --- places ---------------------------------------------------------------------------------------
@rule("places")
def _places(w: Writer, of: str, given: tuple, dtype: Any) -> Ref:
    """The places from which a dimension is taken."""
    if not sizes_in(given):
        make = vocabulary.MAKERS["places"].forward
        return w.constant(make(of=of, given=given, dtype=dtype))
    return w.cast(_PLACES[of](w, *given), dtype)


def _nearest(w: Writer, size: Any, out: Any, f: Any, shift: float, plain: bool) -> Ref:
    old, new = w.size(size), w.size(out)
    step = w.node("Div", *(w.cast(n, np.float64) for n in (old, new)))
    if f is not None:
        step = w.node("Div", w.constant(1.0, np.float64), w.operand(f, np.float64))
    i = w.cast(w.node("Range", _int(w, 0), new, _int(w, 1)), np.float64)
    step = w.cast(w.cast(step, np.float32), np.float64)
    at = w.node("Mul", w.node("Add", i, w.constant(shift, np.float64)), step)
    last = w.node("Sub", old, _int(w, 1))
    return w.node("Min", w.cast(w.cast(at, np.float32), INT64), last)


def _padding(w: Writer, mode: str, size: Any, low: Any, high: Any) -> Ref:
    n, start = w.size(size), w.node("Neg", w.size(low))
    places = w.node("Range", start, w.node("Add", n, w.size(high)), _int(w, 1))
    if mode == "circular":
        return w.node("Mod", places, n)
    last = w.node("Sub", n, _int(w, 1))
    if mode == "replicate":
        return w.node("Min", w.node("Max", places, _int(w, 0)), last)
    back = w.node("Abs", w.node("Sub", last, w.node("Abs", places)))
    return w.node("Sub", last, back)


def _repeated(w: Writer, n: Any, times: Any) -> Ref:
    total, runs = w.size(computed("*", n, times)), w.node("Max", w.size(times), _int(w, 1))
    return w.node("Div", w.node("Range", _int(w, 0), total, _int(w, 1)), runs)


_PLACES: dict[str, Any] = {"nearest": _nearest, "padding": _padding, "repeated": _repeated}
