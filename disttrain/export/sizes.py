"""Sizes of saved programs: numbers as expressions of the names of dimensions (``2*batch + 1``).

Expressions come from files, so they are parsed here by a grammar of their own and walked; nothing
of them is ever compiled or run by Python. Numbers on the way are limited.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import ShapeError

LONGEST = 2000  # characters of an expression
_DEEPEST = 60  # brackets in brackets
_OPERATORS = 150
_MOST = 1 << 62

_TOKEN = re.compile(
    r"\s*(?:(\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)|([A-Za-z_][\w.]*)|(//|\*\*|<<|>>|[<>=!]=|[-+*/%()<>&|^]))"
)


def _power(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int) and (b > 64 or abs(a) > 1 << 32):
        raise ArithmeticError("a power is too large")
    return a**b


def _shifted(a: Any, b: Any) -> Any:
    if not 0 <= b <= 64:
        raise ArithmeticError("a shift is too large")
    return a << b


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv,
    "/": operator.truediv, "%": operator.mod, "**": _power, "<<": _shifted,
    ">>": operator.rshift, "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_CALLS: dict[str, Callable[[Any], Any]] = {
    "math.trunc": math.trunc, "math.floor": math.floor, "math.ceil": math.ceil, "abs": abs,
    "round": round, "float": float, "math.isfinite": math.isfinite,
}  # fmt: skip
_LEVELS = (  # loosest first; ``not`` stands before all, ``-x`` and powers behind
    ("==", "!=", "<", "<=", ">", ">="), ("|",), ("^",), ("&",), ("<<", ">>"), ("+", "-"),
    ("*", "/", "//", "%"),
)  # fmt: skip
COMPARISONS = frozenset(_LEVELS[0])


class SizeError(ShapeError):
    """An expression of sizes that cannot be read, or has no value."""


class Size:
    """A number that depends on dimensions of the inputs: an expression of their names."""

    __slots__ = ("text", "tree")

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = _Parser(text).parsed()

    def evaluate(self, values: Mapping[str, int]) -> Any:
        """The number for these sizes, by the names of dimensions."""
        try:
            return _value(self.tree, values)
        except KeyError as missing:
            raise SizeError(f"size {self.text}: no dimension is called {missing}") from None
        except (ArithmeticError, ValueError, TypeError) as error:
            raise SizeError(f"size {self.text}: {error} for {dict(values)}") from None

    @property
    def names(self) -> frozenset[str]:
        """The dimensions that it depends on."""
        return frozenset(_names(self.tree))

    @property
    def alone(self) -> bool:
        """Whether it is a dimension itself."""
        return self.tree[0] == "name"

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def __add__(self, other: Any) -> Any:
        if other.__class__ not in (Size, int):
            return NotImplemented
        return self if other == 0 else Size(f"{self.text} + {_grouped(other)}")

    __radd__ = __add__

    def __reduce__(self) -> tuple:
        return Size, (self.text,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


def _grouped(x: Any) -> str:
    text = str(x)
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def renamed(text: str, names: Mapping[str, str]) -> str:
    """An expression with other names for its symbols."""
    found = re.sub(r"\bs\d+\b", lambda match: names.get(match[0], match[0]), text)
    while found.startswith("(") and _closes(found) == len(found) - 1:
        found = found[1:-1]
    return found


def _closes(text: str) -> int:
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if not depth:
            return at
    return -1


def evaluated(x: Any, values: Mapping[str, int]) -> Any:
    """``x`` with numbers in place of sizes, also inside of tuples, lists, dicts and slices."""
    if x.__class__ is Size:
        return x.evaluate(values)
    if isinstance(x, (tuple, list)):
        parts = [evaluated(y, values) for y in x]
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    if isinstance(x, dict):
        return {k: evaluated(y, values) for k, y in x.items()}
    if isinstance(x, slice):
        return slice(*(evaluated(y, values) for y in (x.start, x.stop, x.step)))
    return x


def sizes_in(x: Any) -> list[Size]:
    """The sizes in a value."""
    if x.__class__ is Size:
        return [x]
    if isinstance(x, dict):
        return [s for y in x.values() for s in sizes_in(y)]
    if isinstance(x, slice):
        return sizes_in((x.start, x.stop, x.step))
    return [s for y in x for s in sizes_in(y)] if isinstance(x, (tuple, list)) else []


# --- values ---------------------------------------------------------------------------------------
def _value(tree: tuple, values: Mapping[str, int]) -> Any:
    kind = tree[0]
    if kind == "number":
        return tree[1]
    if kind == "name":
        return values[tree[1]]
    given = [_value(part, values) for part in tree[2:]]
    found = tree[1](*given)
    if isinstance(found, complex) or (isinstance(found, int) and abs(found) > _MOST):
        raise ArithmeticError(f"{found!r:.40} is no size")
    return found


def _names(tree: tuple) -> list[str]:
    if tree[0] == "name":
        return [tree[1]]
    return [] if tree[0] == "number" else [n for part in tree[2:] for n in _names(part)]


# --- the grammar ----------------------------------------------------------------------------------
class _Parser:
    """One expression, by descent from its loosest operator."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or len(text) > LONGEST:
            raise SizeError(f"size: {text!r:.60} given; an expression of {LONGEST} characters at "
                            "most is needed")  # fmt: skip
        self.text, self.at, self.depth, self.operators = text, 0, 0, 0
        self.tokens = self._cut()

    def _cut(self) -> list[tuple[int, str]]:
        found, at, text = [], 0, self.text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise SizeError(f"size {self.text!r:.60}: character {at} is not understood")
            assert match.lastindex is not None
            found.append((match.lastindex, match[match.lastindex]))
            at = match.end()
        return found

    def parsed(self) -> tuple:
        """The whole expression."""
        tree = self._negation()
        if self.at != len(self.tokens):
            raise self._odd()
        return tree

    def _odd(self) -> SizeError:
        word = self.tokens[self.at][1] if self.at < len(self.tokens) else "its end"
        return SizeError(f"size {self.text!r:.60}: {word!r} is not understood there")

    def _word(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def _deeper(self) -> None:
        self.operators += 1
        if self.depth > _DEEPEST or self.operators > _OPERATORS:
            raise SizeError(f"size {self.text!r:.60}: it is nested too deeply")

    def _negation(self) -> tuple:
        if self._word() != "not":
            return self._level(0)
        self.depth += 1
        self._deeper()
        self.at += 1
        tree = ("not", operator.not_, self._negation())
        self.depth -= 1
        return tree

    def _level(self, level: int) -> tuple:
        if level == len(_LEVELS):
            return self._unary()
        left = self._level(level + 1)
        while self._word() in _LEVELS[level]:
            sign = self._word()
            self._deeper()
            self.at += 1
            left = (sign, _BINARY[sign], left, self._level(level + 1))
        return left

    def _unary(self) -> tuple:
        if self._word() != "-":
            return self._exponent()
        self.depth += 1
        self._deeper()
        self.at += 1
        tree = ("-", operator.neg, self._unary())
        self.depth -= 1
        return tree

    def _exponent(self) -> tuple:
        base = self._atom()
        if self._word() != "**":
            return base
        self.depth += 1
        self._deeper()
        self.at += 1
        tree = ("**", _power, base, self._unary())
        self.depth -= 1
        return tree

    def _atom(self) -> tuple:
        if self.at == len(self.tokens):
            raise self._odd()
        kind, word = self.tokens[self.at]
        if kind == 1:
            self.at += 1
            return ("number", int(word) if word.isdigit() else float(word))
        if word in _CALLS:
            self.at += 1
            return ("call", _CALLS[word], self._bracket())
        if kind == 2 and word.isidentifier() and word != "not":
            self.at += 1
            return ("number", float(word)) if word in ("inf", "nan") else ("name", word)
        return self._bracket()

    def _bracket(self) -> tuple:
        if self._word() != "(":
            raise self._odd()
        self.depth += 1
        self._deeper()
        self.at += 1
        tree = self._negation()
        if self._word() != ")":
            raise self._odd()
        self.at += 1
        self.depth -= 1
        return tree


__all__ = ["COMPARISONS", "Size", "SizeError", "evaluated", "renamed", "sizes_in"]
