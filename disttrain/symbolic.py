"""Symbolic numbers: sizes that a program computes with, as expressions of the sizes it was given.

A ``Symbolic`` stands for an int or a float in one run, in which it has a value. What is computed
from it is symbolic too; what Python decides by it (a comparison, a truth) becomes a *relation* in
its ``Scope``, which other sizes have to satisfy as well; and where its value itself is taken
(``range``, ``int()``, an index, a hash, a text) the relation is that it is this value.

It is no int to C code, whatever ``isinstance`` says: all that takes its value must ask for it.
Integers are kept as polynomials, so that equal ones have equal texts; sizes that are symbols are
at least ``LEAST``. What an expression computes for other values is what the program has computed,
operation by operation.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from .polynomials import (
    LEAST,
    Poly,
    added,
    is_certain,
    product,
    quotient,
    relation,
    scaled,
    text_of,
)
from .trace import call_site

Of = Callable[[Sequence[Any]], Any]  # of the values of symbols


class Scope:
    """What is known of the symbols of one run.

    ``relations``: what must hold of their values, as texts, with the line that needs it.
    ``sketch(make, given, shape, in_order)``: an array of numbers that depend on sizes (``made``).
    ``hashed(number)``: told before a number's hash is taken, as what keeps things by it does.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.values: list[float] = []
        self.relations: dict[str, str] = {}
        self.atoms: set[str] = set()  # parts of polynomials that are no symbols
        self.sketch: Callable[[Callable, tuple, tuple, bool], Any] | None = None
        self.hashed: Callable[[Symbolic], None] | None = None
        self._computed: dict[str, Of] = {}  # by the texts of numbers
        self._tests: dict[str, Of] = {}  # by the texts of relations

    def symbol(self, value: float) -> Any:
        """A new symbol, which has this value in the run: an int, of at least ``LEAST``, or a
        float."""
        name = f"s{len(self.names)}"
        self.names.append(name)
        self.values.append(value)
        poly: Poly | None = {(name,): 1} if type(value) is int else None
        return Symbolic(self, name, value, operator.itemgetter(len(self.names) - 1), poly)

    def note(self, text: str, how: Of) -> None:
        """How a number is computed."""
        self._computed.setdefault(text, how)

    def of(self, text: str) -> Of:
        """How the number with this text is computed."""
        return self._computed[text]

    def need(self, text: str, test: Of) -> None:
        """A relation that holds."""
        if text not in self.relations:
            self.relations[text], self._tests[text] = call_site(), test

    def equal(self, a: str, b: str) -> None:
        """The relation that two numbers, given by their texts, are equal."""
        f, g = (self._computed.get(x) or _constant(int(x)) for x in (a, b))
        self.need(f"{a} == {b}", lambda v: f(v) == g(v))

    def function(self, texts: Iterable[str]) -> Callable[..., tuple]:
        """Of values of the symbols: the values of ``texts``."""
        computed = [self._computed[text] for text in texts]
        return lambda *values: tuple([how(values) for how in computed])

    def tests_of(self, wanted: Callable[[str], bool]) -> list[Of]:
        """What says of values of the symbols whether relations hold, of those ``wanted``."""
        return [test for text, test in self._tests.items() if wanted(text)]

    def holds(self, *values: float) -> bool:
        """Whether all relations hold of values of the symbols."""
        if any(type(n) is int and n < LEAST for n in values):
            return False
        try:
            return all(test(values) for test in self._tests.values())
        except ERRORS:
            return False


# What expressions raise that have no value for some sizes.
ERRORS = (ArithmeticError, ValueError)


def _constant(x: Any) -> Of:
    return lambda values: x


class Symbolic:
    """A number that depends on sizes. ``value``: the one that it has in this run; ``text``: how it
    is computed from symbols; ``poly``: the same as a polynomial, of integers."""

    __slots__ = ("of", "poly", "scope", "text", "value")

    def __init__(
        self, scope: Scope, text: str, value: float, of: Of, poly: Poly | None = None
    ) -> None:
        self.scope, self.text, self.value, self.of, self.poly = scope, text, value, of, poly
        scope.note(text, of)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return int if self.poly is not None else float

    # --- where the value itself is taken ----------------------------------------------------
    def pin(self) -> Any:
        """The value, which it must have from now on."""
        of, value = self.of, self.value
        if self.poly is not None:
            self.scope.need(f"{self.text} == {value!r}", lambda v: of(v) == value)
        else:  # (-0.0 is 0.0 for nobody but comparisons)
            self.scope.need(f"{self.text} == {value!r}", lambda v: repr(of(v)) == repr(value))
        return value

    def __index__(self) -> int:
        if self.poly is None:
            raise TypeError("'float' object cannot be interpreted as an integer")
        return self.pin()

    def __int__(self) -> int:
        return int(self.pin())

    def __float__(self) -> float:
        return float(self.pin())

    def __complex__(self) -> complex:
        return complex(self.pin())

    def __hash__(self) -> int:
        if self.scope.hashed is not None:
            self.scope.hashed(self)
        return hash(self.pin())

    def __str__(self) -> str:
        return str(self.pin())

    def __repr__(self) -> str:
        return repr(self.pin())

    def __format__(self, how: str) -> str:
        return format(self.pin(), how)

    def __array_ufunc__(self, ufunc: Any, method: str, *given: Any, **words: Any) -> Any:
        pinned = [x.pin() if type(x) is Symbolic else x for x in given]
        return getattr(ufunc, method)(*pinned, **words)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self.pin(), dtype)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(self.value, name):
            raise AttributeError(name)
        return getattr(self.pin(), name)

    def __copy__(self) -> Symbolic:
        return self

    def __deepcopy__(self, memo: object) -> Symbolic:
        return self

    def __reduce__(self) -> tuple:
        return _plain, (self.pin(),)

    # --- decisions --------------------------------------------------------------------------
    def __bool__(self) -> bool:
        return self != 0

    def __eq__(self, other: object) -> Any:
        return _decided(self, other, "==", operator.eq)

    def __ne__(self, other: object) -> Any:
        return _decided(self, other, "!=", operator.ne)

    def __lt__(self, other: object) -> Any:
        return _decided(self, other, "<", operator.lt)

    def __le__(self, other: object) -> Any:
        return _decided(self, other, "<=", operator.le)

    def __gt__(self, other: object) -> Any:
        return _decided(self, other, ">", operator.gt)

    def __ge__(self, other: object) -> Any:
        return _decided(self, other, ">=", operator.ge)

    # --- arithmetic -------------------------------------------------------------------------
    def __neg__(self) -> Any:
        if self.poly is not None:
            return _of(self.scope, scaled(self.poly, -1), -self.value)
        of = self.of
        return Symbolic(self.scope, f"-({self.text})", -self.value, lambda v: -of(v))

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        if self.poly is not None:
            return -self if self < 0 else self
        of = self.of  # (of -0.0, too)
        return Symbolic(self.scope, f"abs({self.text})", abs(self.value), lambda v: abs(of(v)))

    def __trunc__(self) -> Any:
        return self._whole("math.trunc({})", math.trunc)

    def __floor__(self) -> Any:
        return self._whole("math.floor({})", math.floor)

    def __ceil__(self) -> Any:
        return self._whole("math.ceil({})", math.ceil)

    def __round__(self, digits: int | None = None) -> Any:
        if digits is not None:
            return round(self.pin(), digits)
        return self._whole("round({})", round)

    def _whole(self, form: str, how: Callable[[float], int]) -> Any:
        """An integer made of this number."""
        if self.poly is not None:
            return self
        of = self.of
        return _atom(self.scope, form.format(self.text), how(self.value), lambda v: how(of(v)))

    def conjugate(self) -> Any:
        return self

    @property
    def real(self) -> Any:
        return self

    def __divmod__(self, other: Any) -> Any:
        return operator.floordiv(self, other), operator.mod(self, other)

    def __rdivmod__(self, other: Any) -> Any:
        return operator.floordiv(other, self), operator.mod(other, self)


def _plain(value: float) -> float:
    return value


# --- polynomials ----------------------------------------------------------------------------------
def _poly_of(x: Any) -> Poly | None:
    if type(x) is Symbolic:
        return x.poly
    if type(x) is int:
        return {(): x} if x else {}
    return None


def _of(scope: Scope, poly: Poly, value: float) -> Any:
    """The integer that a polynomial is: Python's own where it depends on nothing."""
    if not poly or (len(poly) == 1 and () in poly):
        return poly.get((), 0)
    text = text_of(poly)
    alone = list(poly.items()) == [((text,), 1)]
    terms = [(factor, [scope.of(name) for name in names]) for names, factor in poly.items()]

    def of(values: Sequence[int]) -> int:
        return sum(math.prod([f(values) for f in parts], start=n) for n, parts in terms)

    return Symbolic(scope, text if alone else f"({text})", value, of, poly)


def _atom(scope: Scope, text: str, value: int, of: Of) -> Symbolic:
    """An integer that is no polynomial of others."""
    scope.atoms.add(text)
    return Symbolic(scope, text, value, of, {(text,): 1})


# --- operators ------------------------------------------------------------------------------------
def _operand(x: Any) -> Any:
    """An operand of an operator: a symbolic or plain number; None for what is none."""
    if type(x) in (Symbolic, int, float, bool):
        return int(x) if type(x) is bool else x
    if type(x).__module__ == "numpy" and getattr(x, "ndim", 1) == 0 and hasattr(x, "item"):
        number = x.item()
        return number if type(number) is int else None
    return None


def _value(x: Any) -> Any:
    return x.value if type(x) is Symbolic else x


def _of_operand(x: Any) -> Of:
    return x.of if type(x) is Symbolic else _constant(x)


def _written(x: Any) -> str:
    if type(x) is Symbolic:
        return x.text
    return repr(x) if x >= 0 else f"({x!r})"


def _decided(a: Symbolic, other: Any, sign: str, how: Callable[[Any, Any], bool]) -> Any:
    """What a comparison says, as a relation from now on."""
    b = _operand(other)
    if b is None:
        return NotImplemented
    answer = how(a.value, _value(b))
    f, g = a.of, _of_operand(b)

    def test(values: Sequence[int]) -> bool:
        return how(f(values), g(values)) is answer

    p, q = a.poly, _poly_of(b)
    if p is not None and q is not None:
        difference = added(p, q, -1)
        if is_certain(difference, sign, a.scope.atoms):
            return answer
        a.scope.need(relation(difference, sign if answer else _OPPOSITE[sign]), test)
        return answer
    text = f"{a.text} {sign} {_written(b)}"
    a.scope.need(text if answer else f"not ({text})", test)
    return answer


_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def _binary(sign: str, how: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def run(a: Any, b: Any) -> Any:
        scope = a.scope if type(a) is Symbolic else b.scope
        p, q = _poly_of(a), _poly_of(b)
        value = how(_value(a), _value(b))
        if p is not None and q is not None:
            if sign in ("+", "-"):
                return _of(scope, added(p, q, 1 if sign == "+" else -1), value)
            if sign == "*":
                return _of(scope, product(p, q), value)
            exact = quotient(p, q, scope.atoms) if sign in ("//", "%") else None
            if exact is not None:
                return _of(scope, exact, value) if sign == "//" else 0
            if sign == "**" and type(b) is Symbolic:  # its sign decides on the type
                return how(a, b.pin())
            if sign == "**" and type(a) is Symbolic and 0 <= b <= 4:
                return math.prod([a] * b)
        text = f"({_written(a)} {sign} {_written(b)})"
        f, g = _of_operand(a), _of_operand(b)

        def of(values: Sequence[int]) -> Any:
            found = how(f(values), g(values))
            if type(found) is not type(value):  # a power of what is negative for these sizes
                raise ArithmeticError(f"{text} is a {type(found).__name__}")
            return found

        if type(value) is int:
            return _atom(scope, text, value, of)
        if type(value) is not float:  # a complex one
            return how(*(x.pin() if type(x) is Symbolic else x for x in (a, b)))
        return Symbolic(scope, text, value, of)

    return run


def _attach(name: str, sign: str, how: Callable[[Any, Any], Any]) -> None:
    run = _binary(sign, how)

    def forth(self: Symbolic, other: Any) -> Any:
        b = _operand(other)
        return NotImplemented if b is None else run(self, b)

    def back(self: Symbolic, other: Any) -> Any:
        b = _operand(other)
        return NotImplemented if b is None else run(b, self)

    setattr(Symbolic, f"__{name}__", forth)
    setattr(Symbolic, f"__r{name}__", back)


for _name, _sign, _how in (
    ("add", "+", operator.add), ("sub", "-", operator.sub), ("mul", "*", operator.mul),
    ("floordiv", "//", operator.floordiv), ("mod", "%", operator.mod),
    ("truediv", "/", operator.truediv), ("pow", "**", operator.pow),
    ("lshift", "<<", operator.lshift), ("rshift", ">>", operator.rshift),
    ("and", "&", operator.and_), ("or", "|", operator.or_), ("xor", "^", operator.xor),
):  # fmt: skip
    _attach(_name, _sign, _how)


# --- for those who meet them ----------------------------------------------------------------------
def is_symbolic(x: object) -> bool:
    """Whether a number, or one in a tuple, list or slice, depends on sizes."""
    return _first(x) is not None


def as_float(x: Any) -> Any:
    """``float(x)``, symbolic where ``x`` is."""
    if type(x) is not Symbolic:
        return float(x)
    if x.poly is None:
        return x
    of = x.of
    return Symbolic(x.scope, f"float({x.text})", float(x.value), lambda v: float(of(v)))


def as_int(x: Any) -> Any:
    """``int(x)``, symbolic where ``x`` is."""
    return math.trunc(x) if type(x) is Symbolic else int(x)


def is_finite(x: Any) -> bool:
    """``math.isfinite(x)``; sizes are."""
    if type(x) is not Symbolic or x.poly is not None:
        return type(x) is Symbolic or math.isfinite(x)
    of, answer = x.of, math.isfinite(x.value)
    text = f"math.isfinite({x.text})"
    x.scope.need(text if answer else f"not {text}", lambda v: math.isfinite(of(v)) is answer)
    return answer


def hinted(x: Any) -> Any:
    """``x`` with the values of this run in place of symbolic numbers, inside tuples and slices
    too."""
    if type(x) is Symbolic:
        return x.value
    if isinstance(x, tuple):
        return tuple(map(hinted, x))
    if isinstance(x, list):
        return list(map(hinted, x))
    if isinstance(x, slice):
        return slice(hinted(x.start), hinted(x.stop), hinted(x.step))
    return x


def _first(x: Any) -> Symbolic | None:
    if type(x) is Symbolic:
        return x
    x = (x.start, x.stop, x.step) if isinstance(x, slice) else x
    for y in x if isinstance(x, (tuple, list)) else ():
        if (found := _first(y)) is not None:
            return found
    return None


def made(make: Callable[..., Any], *given: Any, shape: Sequence[int], in_order: bool = True) -> Any:
    """``make(*given)``, an array of this shape, whose memory is ``in_order`` whatever its sizes;
    where sizes that may change are given, one that is made anew for other sizes."""
    found = _first((given, tuple(shape)))
    if found is None:
        return make(*given)
    if found.scope.sketch is None:
        return make(*hinted(given))
    return found.scope.sketch(make, given, tuple(shape), in_order)


def common_shape(*shapes: Sequence[int]) -> tuple:
    """The shape that all broadcast to."""
    if _first(list(map(tuple, shapes))) is None:
        return np.broadcast_shapes(*shapes)  # type: ignore[arg-type]
    out: list[Any] = []
    for i in range(max(map(len, shapes))):
        size: Any = 1
        for shape in shapes:
            n = shape[-1 - i] if i < len(shape) else 1
            if size == 1:
                size = n
            elif not (n == 1 or n == size):
                raise ValueError("shape mismatch: objects cannot be broadcast to a single shape")
        out.insert(0, size)
    return tuple(out)


def sliced(s: slice, n: Any) -> tuple[Any, Any, int]:
    """``s.indices(n)`` for positive steps, and the count: (start, count, step)."""
    step = 1 if s.step is None else s.step
    start = _bounded(0 if s.start is None else s.start, n)
    stop = n if s.stop is None else _bounded(s.stop, n)
    if stop <= start:
        return start, 0, step
    return start, (stop - start if step == 1 else -((start - stop) // step)), step


def _bounded(at: Any, n: Any) -> Any:
    if at < 0:
        at = at + n
        return 0 if at < 0 else at
    return n if at > n else at
