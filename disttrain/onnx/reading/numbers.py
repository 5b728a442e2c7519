"""Numbers of the host: sizes of tensors and what a model computes from them, before it uses them as
sizes. They are Python's own, so that those of a symbolic run stay expressions of its sizes.

``RULES`` has what models do to them. Values: ``Numbers``, of any shape, in row-major order.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core.types.dtypes import bool as bool_type
from ...core.types.dtypes import dtype, float32, int64, of
from ...errors import ShapeError
from .elements import held_in


class Numbers:
    """``items`` in row-major order, of a ``shape`` of plain ints; ``kind`` is their type."""

    __slots__ = ("items", "kind", "shape")

    def __init__(self, items: Sequence[Any], shape: tuple[int, ...], kind: dtype) -> None:
        self.items, self.shape, self.kind = list(items), shape, kind

    def list(self) -> list[Any]:
        """All of them, in one list."""
        return list(self.items)

    def one(self) -> Any:
        """The only one."""
        if len(self.items) != 1:
            raise ShapeError(f"{len(self.items)} numbers were given; needed is one")
        return self.items[0]

    def places(self) -> np.ndarray:
        """Numbers of the items, in their shape: what rearranges these rearranges the items."""
        return np.arange(len(self.items)).reshape(self.shape)

    def at(self, places: Any) -> Numbers:
        """The items at ``places``, in that array's shape."""
        places = np.asarray(places)
        return Numbers([self.items[i] for i in places.ravel().tolist()], places.shape, self.kind)


def of_array(array: np.ndarray, kind: dtype) -> Numbers:
    """Those of an array."""
    return Numbers(array.ravel().tolist(), array.shape, kind)


def of_sizes(sizes: Sequence[Any]) -> Numbers:
    """Sizes, as a row."""
    return Numbers(sizes, (len(sizes),), int64)


_MOST = 1 << 16  # numbers that are made at once: as many as no model has sizes


def _few(count: Any) -> Any:
    if type(count) is int and count > _MOST:
        raise ShapeError(f"{count} numbers of sizes would be made; at most {_MOST} are")
    return count


Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def add(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, rule))
        return rule

    return add


def _broadcast(how: Callable[..., Any], kind: dtype, *given: Numbers) -> Numbers:
    places = np.broadcast_arrays(*[g.places() for g in given])
    rows = zip(*[[g.items[i] for i in p.ravel().tolist()] for g, p in zip(given, places)])
    return Numbers([how(*row) for row in rows], places[0].shape, kind)


def _quotient(a: Any, b: Any) -> Any:
    """As ONNX divides: integers towards zero."""
    if isinstance(a, float) or isinstance(b, float):
        return a / b
    if a >= 0 and b > 0:
        return a // b
    return int(math.copysign(1, a) * math.copysign(1, b)) * (abs(a) // abs(b))


def _smaller(a: Any, b: Any) -> Any:
    return b if b < a else a


def _larger(a: Any, b: Any) -> Any:
    return b if b > a else a


_ARITHMETIC = {
    "Add": operator.add, "Sub": operator.sub, "Mul": operator.mul, "Div": _quotient,
    "Mod": operator.mod, "Pow": operator.pow,
}  # fmt: skip
_MANY = {"Min": _smaller, "Max": _larger, "Sum": operator.add}
_TESTS = {
    "Equal": operator.eq, "Less": operator.lt, "Greater": operator.gt,
    "LessOrEqual": operator.le, "GreaterOrEqual": operator.ge,
    "And": lambda a, b: bool(a) and bool(b), "Or": lambda a, b: bool(a) or bool(b),
    "Xor": lambda a, b: bool(a) != bool(b),
}  # fmt: skip
_SINGLE: dict[str, Callable[[Any], Any]] = {
    "Neg": operator.neg, "Abs": abs, "Floor": math.floor, "Ceil": math.ceil, "Round": round,
    "Sqrt": lambda a: a**0.5,
}  # fmt: skip


def _arithmetic(how: Callable) -> Rule:
    return lambda a, b: _broadcast(how, a.kind, a, b)


def _test(how: Callable) -> Rule:
    return lambda a, b: _broadcast(how, bool_type, a, b)


def _single(how: Callable) -> Rule:
    return lambda a: _broadcast(lambda x: _like(how(x), a.kind), a.kind, a)


def _many(how: Callable) -> Rule:
    def run(*given: Numbers) -> Numbers:
        out = given[0]
        for more in given[1:]:
            out = _broadcast(how, out.kind, out, more)
        return out

    return run


RULES |= {name: _arithmetic(how) for name, how in _ARITHMETIC.items()}
RULES |= {name: _single(how) for name, how in _SINGLE.items()}
RULES |= {name: _many(how) for name, how in _MANY.items()}
RULES |= {name: _test(how) for name, how in _TESTS.items()}
RULES["Not"] = lambda a: _broadcast(lambda x: not x, bool_type, a)
RULES["Identity"] = lambda a: a
RULES["Where"] = lambda c, a, b: _broadcast(lambda t, x, y: x if t else y, a.kind, c, a, b)


def _like(x: Any, kind: dtype) -> Any:
    if kind.is_floating_point:
        return x if isinstance(x, float) else x * 1.0
    return x


@_rule("Cast")
def _cast(a: Numbers, *, to: int, **_: Any) -> Numbers:
    kind = held_in(to)
    if kind == bool_type:
        return Numbers([bool(x) for x in a.items], a.shape, kind)
    if kind.is_floating_point:
        return Numbers([_single_float(_like(x, kind), kind) for x in a.items], a.shape, kind)
    items = [math.trunc(x) if isinstance(x, float) else x + 0 for x in a.items]
    return Numbers(items, a.shape, kind)


def _single_float(x: Any, kind: dtype) -> Any:
    return float(np.float32(x)) if kind == float32 and type(x) is float else x


def _axes(axes: Any, ndim: int) -> list[int]:
    given = axes.list() if isinstance(axes, Numbers) else list(axes)
    return sorted(a + ndim if a < 0 else a for a in given)


@_rule("Gather")
def _gather(a: Numbers, at: Numbers, *, axis: int = 0) -> Numbers:
    index = np.array(at.items, np.int64).reshape(at.shape)
    return a.at(np.take(a.places(), index, axis=axis))


@_rule("Slice")
def _slice(
    a: Numbers, starts: Any, ends: Any = None, axes: Any = None, steps: Any = None
) -> Numbers:
    first, last = (x.list() if isinstance(x, Numbers) else list(x) for x in (starts, ends))
    along = range(len(first)) if axes is None else _given(axes)
    step = [1] * len(first) if steps is None else _given(steps)
    index = [slice(None)] * len(a.shape)
    for axis, i, j, k in zip(along, first, last, step):
        index[axis] = slice(int(i), None if k < 0 and j < -a.shape[axis] else int(j), int(k))
    return a.at(a.places()[tuple(index)])


def _given(x: Any) -> list[Any]:
    return x.list() if isinstance(x, Numbers) else list(x)


@_rule("Concat")
def _concat(*given: Numbers, axis: int = 0) -> Numbers:
    places, start = [], 0
    for g in given:
        places.append(g.places() + start)
        start += len(g.items)
    joined = Numbers([x for g in given for x in g.items], (start,), given[0].kind)
    return joined.at(np.concatenate(places, axis))


@_rule("Unsqueeze")
def _unsqueeze(a: Numbers, axes: Any) -> Numbers:
    along = _axes(axes, len(a.shape) + len(_given(axes)))
    return a.at(np.expand_dims(a.places(), tuple(along)))


@_rule("Squeeze")
def _squeeze(a: Numbers, axes: Any = None) -> Numbers:
    along = None if axes is None else tuple(_axes(axes, len(a.shape)))
    return a.at(np.squeeze(a.places(), along))


@_rule("Reshape")
def _reshape(a: Numbers, shape: Numbers, *, allowzero: int = 0) -> Numbers:
    sizes = [int(n) for n in shape.items]
    if not allowzero:
        sizes = [a.shape[i] if n == 0 else n for i, n in enumerate(sizes)]
    return a.at(a.places().reshape(sizes))


@_rule("Transpose")
def _transpose(a: Numbers, *, perm: Any = None) -> Numbers:
    return a.at(a.places().transpose(perm))


@_rule("Flatten")
def _flatten(a: Numbers, *, axis: int = 1) -> Numbers:
    return a.at(a.places().reshape(math.prod(a.shape[:axis]), -1))


def _reduced(how: Callable[[Any, Any], Any]) -> Rule:
    def run(a: Numbers, axes: Any = None, *, keepdims: int = 1, **_: Any) -> Numbers:
        if axes is not None and len(a.shape) != 1:
            raise ShapeError("sizes are reduced over all axes; nothing else is known here")
        total = a.items[0]
        for x in a.items[1:]:
            total = how(total, x)
        return Numbers([total], (1,) * len(a.shape) if keepdims else (), a.kind)

    return run


RULES |= {
    "ReduceProd": _reduced(operator.mul),
    "ReduceSum": _reduced(operator.add),
    "ReduceMax": _reduced(_larger),
    "ReduceMin": _reduced(_smaller),
}


@_rule("Range")
def _range(start: Numbers, limit: Numbers, delta: Numbers, **_: Any) -> Numbers:
    first, step = start.one(), delta.one()
    if step == 0:
        raise ShapeError("a range with steps of 0")
    count = _few(max(0, math.ceil((limit.one() - first) / step)))
    return Numbers([first + i * step for i in range(count)], (count,), start.kind)


@_rule("ConstantOfShape")
def _constant_of_shape(shape: Numbers, *, value: Any = None) -> Numbers:
    sizes = tuple(int(n) for n in shape.items)
    fill = 0.0 if value is None else value.ravel()[0].item()
    kind = float32 if value is None else held_in_array(value)
    return Numbers([fill] * _few(math.prod(sizes)), sizes, kind)


def held_in_array(array: np.ndarray) -> dtype:
    """Our type of an array's elements."""
    return of(array.dtype)


@_rule("Expand")
def _expand(a: Numbers, shape: Numbers) -> Numbers:
    sizes = [int(n) for n in shape.items]
    full = np.broadcast_shapes(a.shape, tuple(sizes))
    _few(math.prod(full))
    return a.at(np.broadcast_to(a.places(), full))


@_rule("Tile")
def _tile(a: Numbers, times: Numbers) -> Numbers:
    repeats = [int(n) for n in times.items]
    _few(math.prod(repeats) * len(a.items))
    return a.at(np.tile(a.places(), repeats))
