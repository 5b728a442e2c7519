"""Python's operators and subscripts, for tensors of a program's own, by functions that
``Operations`` has made."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..arrays import pieces
from .graph import CURRENT
from .operations import Operations

# Python's word, or "compare" and one -> what computes it, and the name of its operation in graphs
# (None: that of its kind).
Rows = dict[str, tuple[Callable, str | None]]


class Operators:
    """Gives them to a class. A subclass says what goes together."""

    def __init__(self, made: Operations) -> None:
        self.made = made

    # --- what a subclass may say otherwise ------------------------------------------------------
    def is_odd(self, one: Any, other: Any) -> bool:
        """Whether ``other`` can be no operand beside ``one``."""
        return other is None or isinstance(other, (dict, set))

    def beside(self, one: Any, other: Any, word: str = "") -> Any:
        """``other`` in the type of ``one``, where it is no tensor. ``word``: of the operator, where
        it comes second."""
        made = self.made
        return other if made.is_tensor(other) else made.tensor(other, hint=made.tensor(one).dtype)

    def no_subscript(self, k: Any) -> str:
        """What is told of a subscript that is none."""
        return ("only integers, slices (`:`), ellipsis (`...`), None and scalar integer tensors "
                f"are subscripts, got {k!r}")  # fmt: skip

    # --- making ---------------------------------------------------------------------------------
    def attach(
        self, kind: Any, rows: Rows, unary: dict[str, Callable], equal: Callable,
        not_equal: Callable, one_sided: Iterable[str] = ("lt", "le", "gt", "ge"),
    ) -> None:  # fmt: skip
        """Give ``kind`` the operators. ``one_sided``: those that Python turns round by itself."""
        for word, (fn, name) in rows.items():
            setattr(kind, f"__{word}__", self._binary(fn, word, name, False))
            if word not in one_sided:
                setattr(kind, f"__r{word}__", self._binary(fn, word, name, True))
        for word, one in unary.items():
            setattr(kind, f"__{word}__", lambda value, one=one: one(value))
        kind.__eq__, kind.__ne__ = self._equality(equal, False), self._equality(not_equal, True)
        kind.__getitem__ = lambda value, key: self.subscript(value, key)

    def _binary(self, fn: Callable, word: str, name: str | None, back: bool) -> Callable:
        is_odd, beside, word = self.is_odd, self.beside, "" if back else word

        def method(value: Any, other: Any) -> Any:
            if is_odd(value, other):
                return NotImplemented
            other = beside(value, other, word)
            pair = (other, value) if back else (value, other)
            if name is None:
                return fn(*pair)
            return fn(*pair, name=name if back or CURRENT.get() is not None else None)

        return method

    def _equality(self, fn: Callable, otherwise: bool) -> Callable:
        """``fn`` where both have shapes that go together, else ``otherwise``."""
        tensor = self.made.tensor

        def method(value: Any, other: Any) -> Any:
            if other is None or isinstance(other, (dict, set)):
                return otherwise
            try:
                shapes = [tuple(d or 1 for d in tensor(v).shape) for v in (value, other)]
                np.broadcast_shapes(*shapes)
            except ValueError:
                return tensor(otherwise)
            except TypeError:
                return NotImplemented
            return fn(value, self.beside(value, other))

        return method

    def subscript(self, value: Any, key: Any) -> Any:
        """Integers, slices with any step, ``...``, None, scalar tensors; or one mask."""
        made, keys = self.made, key if isinstance(key, tuple) else (key,)
        t = made.tensor(value)
        if len(keys) == 1 and made.is_tensor(keys[0]):
            mask = made.tensor(keys[0])
            if made.type_name(mask) == "bool":
                return made.execute("BooleanMask", lambda v, m: v[m], [t, mask])
        keys = tuple(key) if isinstance(key, (list, np.ndarray)) else keys
        plan, held = pieces.planned(keys, self._place)
        return made.execute("StridedSlice", lambda v, *at: pieces.read_at(v, plan, at), [t, *held],
                            "strided_slice")  # fmt: skip

    def _place(self, k: Any) -> Any:
        t = self.made.tensor(k) if self.made.is_tensor(k) else None
        if t is not None and not len(t.shape) and "int" in self.made.type_name(t):
            return t
        raise TypeError(self.no_subscript(k))
