"""Values with some elements replaced: what programs write through views."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....backends.null import NullArray
from ....ops.declare import REGISTRY
from ..types import INT64, Ref, Unmapped, computed, is_number, same_size, static
from ..writer import RULES, Writer, rule
from .shapes import numbered, steps_of

_END = np.iinfo(np.int64).max


@rule("view_write")
def _view_write(w: Writer, base: Ref, value: Any, chain: tuple) -> Ref:
    return replaced(w, base, w.operand(value, base.dtype), chain)


def replaced(w: Writer, base: Ref, value: Ref, chain: tuple) -> Ref:
    """``base`` with ``value`` at the part that ``chain``, of (primitive, parameters), leads to."""
    if not chain:
        return w.expand(w.cast(value, base.dtype), base.shape or ())
    (name, params), rest = chain[0], chain[1:]
    shape = _part_shape(name, params, base)
    if rest:
        outs, w.outs = w.outs, [NullArray(shape, base.dtype)]
        made = RULES[name](w, base, **params)
        w.outs = outs
        value = replaced(w, Ref(made.name, base.dtype, shape), value, rest)
    else:
        value = w.expand(w.cast(value, base.dtype), shape)
    if name == "getitem":
        return _behind(w, base, value, steps_of(params["index"], base.rank))
    if name == "reshape":
        return w.reshape(value, base.shape or ())
    if name == "permute":
        dims = params["dims"]
        return w.transpose(value, sorted(range(len(dims)), key=dims.__getitem__))
    return _by_places(w, base, value, name, params)


def _by_places(w: Writer, base: Ref, value: Ref, name: str, params: dict) -> Ref:
    places = np.array(numbered(base, name, params)).reshape(-1) - 1
    row, new = w.reshape(base, (-1,)), w.reshape(value, (-1,))
    out = w.node("ScatterElements", row, w.constant(places, INT64), new, axis=0)
    return w.reshape(Ref(out.name, out.dtype), base.shape or ())


def _part_shape(name: str, params: dict, base: Ref) -> tuple:
    shape = base.shape or ()
    shape_of = REGISTRY[name].shape if name in REGISTRY else None
    if static(shape) and shape_of is not None:
        found: tuple = shape_of(NullArray(shape, base.dtype), **params)[0]
        return found
    if name == "permute":
        return tuple(shape[d] for d in params["dims"])
    if name == "getitem":
        return _taken(steps_of(params["index"], len(shape)), shape)
    if name == "reshape":
        return _reshaped(tuple(params["shape"]), shape)
    raise Unmapped(f"a write through {name}, of sizes that depend on the input")


def _reshaped(wanted: tuple, shape: tuple) -> tuple:
    """``wanted`` with the size that its -1 stands for."""
    open_ones = [i for i, n in enumerate(wanted) if is_number(n) and int(n) == -1]
    if not open_ones:
        return wanted
    sizes, kept = list(shape), []
    for m in (n for i, n in enumerate(wanted) if i not in open_ones):
        at = next((i for i, n in enumerate(sizes) if same_size(n, m)), None)
        if at is None:
            kept.append(m)
        else:
            del sizes[at]
    left = computed("//", computed("*", 1, *sizes), computed("*", 1, *kept))
    return tuple(left if i in open_ones else n for i, n in enumerate(wanted))


def _taken(steps: list, shape: tuple) -> tuple:
    """The shape of what a basic index takes."""
    out, dim = list[Any](), 0
    for item in steps:
        if item is None:
            out.append(1)
            continue
        if isinstance(item, slice):
            out.append(_length(item, shape[dim]))
        dim += 1
    return tuple(out)


def _length(s: slice, n: Any) -> Any:
    """How many places a slice of a dimension has."""
    ends = [x for x in (s.start, s.stop, s.step) if x is not None]
    if all(map(is_number, (n, *ends))):
        return len(range(*s.indices(int(n))))
    start, stop = s.start or 0, n if s.stop is None else s.stop
    if s.step not in (None, 1) or any(is_number(x) and int(x) < 0 for x in (start, stop)):
        raise Unmapped("a write to a part whose size depends on the input")
    return stop if is_number(start) and int(start) == 0 else computed("-", stop, start)


def _behind(w: Writer, base: Ref, value: Ref, steps: list) -> Ref:
    """Dimension by dimension: what stands before, the new part, what stands behind."""
    made = _ones(steps)
    if made:  # dimensions of size 1 that the part has, and the base has not
        value = w.squeeze(value, made)
        steps = [s for s in steps if s is not None]
    numbers = [i for i, s in enumerate(steps) if not isinstance(s, slice)]
    if numbers:
        value = w.unsqueeze(value, numbers)
    return _along(w, base, value, steps, 0)


def _ones(steps: list) -> list[int]:
    """Where the part has dimensions that an index made."""
    left = [s for s in steps if s is None or isinstance(s, slice)]
    return [i for i, s in enumerate(left) if s is None]


def _along(w: Writer, base: Ref, value: Ref, steps: list, dim: int) -> Ref:
    while dim < len(steps) and steps[dim] == slice(None):
        dim += 1
    if dim == len(steps):
        return value
    shape = base.shape or ()
    start, stop, step = _range(steps[dim], shape[dim])
    inner = Ref(w.slice(base, dim, start, stop, step).name, base.dtype, _inner(shape, dim))
    new = _along(w, inner, value, steps, dim + 1)
    if step != 1:
        return _strided(w, base, new, dim, start, stop, step)
    parts = [new]
    if not (is_number(start) and int(start) == 0):
        parts.insert(0, w.slice(base, dim, 0, start))
    if not (is_number(stop) and int(stop) == _END) and not same_size(stop, shape[dim]):
        parts.append(w.slice(base, dim, stop, _END))
    return new if len(parts) == 1 else w.node("Concat", *parts, axis=dim)


def _inner(shape: tuple, dim: int) -> tuple:
    return (*shape[:dim], None, *shape[dim + 1 :])


def _range(item: Any, n: Any) -> tuple[Any, Any, int]:
    if isinstance(item, slice):
        start = 0 if item.start is None else item.start
        stop = _END if item.stop is None else item.stop
        return start, stop, 1 if item.step is None else int(item.step)
    if is_number(item) and int(item) == -1:
        return -1, _END, 1
    return item, computed("+", item, 1), 1


def _strided(w: Writer, base: Ref, new: Ref, dim: int, start: Any, stop: Any, step: int) -> Ref:
    """Places with gaps between them: by their numbers."""
    shape = base.shape or ()
    if not is_number(shape[dim]) or not all(map(is_number, (start, stop))):
        raise Unmapped("a write to a slice with a step, of a size that depends on the input")
    places = np.arange(int(shape[dim]))[slice(int(start), None if stop == _END else stop, step)]
    row = w.transpose(Ref(base.name, base.dtype), _front(dim, len(shape)))
    part = w.transpose(Ref(new.name, new.dtype), _front(dim, len(shape)))
    out = w.node("ScatterND", row, w.constant(places[:, None], INT64), part)
    return w.transpose(out, _back(dim, len(shape)))


def _front(dim: int, rank: int) -> list[int]:
    return [dim, *(d for d in range(rank) if d != dim)]


def _back(dim: int, rank: int) -> list[int]:
    return [*range(1, dim + 1), 0, *range(dim + 1, rank)]
