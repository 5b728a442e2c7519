"""Parts of a program's arrays, and copies in which parts are others: ``at(x)[index].set(values)``.

What an index may be, the program says (``items``); places that are not there are left out, or as a
mode says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.tensor import Tensor
from ...ops import api as ops
from ...trace import warn
from .. import indexing
from ..lifting import cast
from .making import Making

_MODES = {
    None: "", "fill": "fill", "drop": "fill", "clip": "clip", "promise_in_bounds": "clip",
    "wrap": "wrap", "fill_or_drop": "fill",
}  # fmt: skip
Items = Callable[[Any, tuple[int, ...]], indexing.Items]


def mode_of(mode: Any) -> str:
    """What a mode, or a member of an enumeration of modes, means for ``arrays.indexing``."""
    name = getattr(mode, "name", mode)
    name = name.lower() if isinstance(name, str) else name
    if name not in _MODES:
        raise ValueError(f"Unknown gather mode: {mode}")
    return _MODES[name]


class At:
    """``x.at``, of which ``[index]`` gives the functions that update a copy."""

    __slots__ = ("_array", "_parts")

    def __init__(self, parts: Parts, array: Any) -> None:
        self._parts, self._array = parts, array

    def __getitem__(self, key: Any) -> Part:
        return Part(self._parts, self._array, key)

    def __repr__(self) -> str:
        return f"_IndexUpdateHelper({self._array!r})"


class Part:
    """``x.at[index]``."""

    __slots__ = ("_array", "_key", "_parts")

    def __init__(self, parts: Parts, array: Any, key: Any) -> None:
        self._parts, self._array, self._key = parts, array, key

    def get(
        self, *, indices_are_sorted: bool = False, unique_indices: bool = False, mode: Any = None,
        fill_value: Any = None, out_sharding: Any = None, wrap_negative_indices: bool = True,
    ) -> Any:  # fmt: skip
        """``x[index]``."""
        how = mode_of(mode)
        if not how and fill_value is not None:
            how = "fill"
        value, weak, key = self._parts.taken(self._array, self._key)
        fill = indexing.missing(value) if fill_value is None else fill_value
        out = indexing.get(value, key, how or "clip", fill, wrap_negative_indices)
        return self._parts.lifting.give(out, weak)

    def _put(self, how: str, values: Any, options: dict[str, Any]) -> Any:
        return self._parts.put(self._array, self._key, how, values, options)

    def apply(self, func: Callable, **options: Any) -> Any:
        """``func`` of what is at ``index`` in its place."""
        return self._put("set", func(self.get()), options)

    def power(self, values: Any, **options: Any) -> Any:
        """To the power of ``values``."""
        return self._put("set", self.get() ** values, options)

    def divide(self, values: Any, **options: Any) -> Any:
        """Over ``values``."""
        value, weak = self._parts.lifting.take(self._array)
        ones = self._parts.lifting.give(ops.ones_like(value), weak)
        return self._array / self._parts.put(ones, self._key, "multiply", values, options)

    def subtract(self, values: Any, **options: Any) -> Any:
        """Less ``values``."""
        return self._put("add", -values, options)

    def set(self, values: Any, **options: Any) -> Any:
        """A copy of x with x[index] set to values."""
        return self._put("set", values, options)

    def add(self, values: Any, **options: Any) -> Any:
        """A copy of x with values added to x[index]."""
        return self._put("add", values, options)

    def multiply(self, values: Any, **options: Any) -> Any:
        """A copy of x with x[index] times values."""
        return self._put("multiply", values, options)

    def min(self, values: Any, **options: Any) -> Any:
        """A copy of x with the least of x[index] and values."""
        return self._put("min", values, options)

    def max(self, values: Any, **options: Any) -> Any:
        """A copy of x with the greatest of x[index] and values."""
        return self._put("max", values, options)

    mul = multiply


class Parts:
    """Reads and updates of the arrays that ``making`` makes. ``words``: what is said of values
    whose type does not fit."""

    def __init__(self, making: Making, items: Items, words: str) -> None:
        self.making, self.lifting, self.items, self.words = making, making.lifting, items, words

    def at(self, array: Any) -> At:
        """What updates copies of ``array``."""
        return At(self, array)

    def taken(self, array: Any, key: Any) -> tuple[Tensor, bool, indexing.Items]:
        """The tensor of an array, whether its type is weak, and the index."""
        value, weak = self.lifting.take(array)
        return value, weak, self.items(key, tuple(value.meta()[0]))

    def reader(self) -> Callable[[Any, Any], Any]:
        """``array[key]`` as a function; places that are not there are brought to the nearest,
        without gradients."""
        take, give, items, is_inside = (
            self.lifting.take, self.lifting.give, self.items, indexing.is_inside
        )  # fmt: skip

        def read(array: Any, key: Any) -> Any:
            value, weak = take(array)
            shape = value.meta()[0]
            if is_inside(key, shape):
                return give(value[key], weak)
            return give(indexing.get(value, items(key, tuple(shape)), "inside"), weak)

        return read

    def put(self, array: Any, key: Any, how: str, values: Any, options: dict[str, Any]) -> Any:
        """A copy with ``values`` set, added ... at ``key``."""
        lift, (value, weak) = self.lifting, self.lifting.take(array)
        many = isinstance(values, (list, tuple))
        given = self.making.asarray(values) if many else lift.plain(values)
        own, (kind, loose) = value.meta()[1], lift.kind_of(given, "scatter")
        if lift.meet([(own, weak), (kind, loose)])[0] != own:
            warn(self.words.format(kind=kind, own=own), FutureWarning)
        mode = "clip" if mode_of(options.get("mode")) == "clip" else "drop"
        negative = options.get("wrap_negative_indices", True)
        found = lift.to_tensor(given, own)
        if how == "add" and own.kind == "b":
            found = cast(found, own)
        items = self.items(key, tuple(value.meta()[0]))
        return lift.give(indexing.put(value, items, found, how, mode, negative), weak)


class Box:
    """An array in a box: what is in it can be replaced, in parts, too. ``made``: an array of what
    is put into one."""

    made: Callable[[Any], Any]

    def __init__(self, value: Any) -> None:
        self._inside: Any = self.made(value)

    shape = property(lambda self: self._inside.shape)
    dtype = property(lambda self: self._inside.dtype)
    ndim = property(lambda self: self._inside.ndim)

    def __getitem__(self, at: Any) -> Any:
        return self._inside[at]

    def __setitem__(self, at: Any, value: Any) -> None:
        self._inside = self._inside.at[at].set(value)
