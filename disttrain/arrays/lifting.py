"""Functions of tensors as functions of what a program has in their place: rows of tables say which
parameters are arrays, in what type these meet, and whether a weak type stays weak.

    lifting = Lifting()
    names = lifting.table("arr min max -> same: clip!; a -> inexact: mean median", (elements, ...))

A row is ``parameters -> rule: name[=function][!] ...``; "." is the first parameter. Those between
bars meet in a type of their own, a star says that one is a sequence of arrays (two stars: that all
arguments by place are), a mark after a colon is a rule of its own (``weights:inexact``); ``!``
keeps weak types. Rules: "same" (as operands meet), "own" (each as it is, or a plain sequence), and
functions of the type ("inexact", "numeric" ...).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..core.tensor import Tensor
from ..core.tensor import wrap as tensor
from ..core.types import dtypes, lattice
from ..core.types.lattice import Kind
from ..errors import CaptureError, DTypeError, LinAlgError, ShapeError
from ..ops import api as ops

To = Callable[[np.dtype], np.dtype]
Group = list[tuple[str, bool, str]]
NUMBERS = (bool, int, float, complex)
_PLAIN = (list, tuple, slice, str)
_FAILURES = (ShapeError, LinAlgError, DTypeError, CaptureError)
_TENSORS = ("Tensor", "Tensor | Tensors", "Tensors", "Sequence[Tensor]", "Index")


def cast(value: Tensor, kind: np.dtype) -> Tensor:
    """``value`` in the type ``kind``; of complex numbers the real part."""
    own = value.meta()[1]
    if own is kind or own == kind:
        return value
    if own.kind == "c" and kind.kind not in "cb":
        value = ops.real(value)
    return value.to(dtypes.of(kind))


def numbered(x: Any, kind: np.dtype) -> Tensor:
    """A number or an array of NumPy's in the type ``kind``; integers that do not fit wrap around,
    as in C."""
    if isinstance(x, int) and kind.kind in "iu" and not isinstance(x, np.generic):
        bits = 8 * kind.itemsize
        x &= (1 << bits) - 1
        x -= (1 << bits) if kind.kind == "i" and x >> (bits - 1) else 0
    return tensor(np.array(x, kind))


def floored(out: Any, kind: np.dtype) -> Any:
    """A result, or the first of several, in another type; whole numbers are floored."""
    if isinstance(out, (tuple, list)):
        return type(out)([floored(out[0], kind), *out[1:]])
    return cast(ops.floor(out) if kind.kind in "iu" and out.is_floating_point() else out, kind)


def leaves(value: Any) -> list[Any]:
    """What nested lists hold."""
    if isinstance(value, (list, tuple)):
        return [leaf for part in value for leaf in leaves(part)]
    return [value]


def _filled(value: Any, queue: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_filled(part, queue) for part in value]
    return next(queue)


class Lifting:
    """What a program has in place of tensors. This one: tensors, NumPy's arrays and numbers, which
    meet by the lattice; results are tensors. A program with arrays of its own says ``own`` (their
    class), ``take`` and ``give``, and what it says of failures."""

    own: type = Tensor
    module = "disttrain.arrays"
    ignored: frozenset[str] = frozenset()  # options that are taken, and mean nothing
    cast: frozenset[str] = frozenset()  # functions whose results go into a ``dtype``
    rules: dict[str, To | None] = {
        "same": None, "own": None, "inexact": lattice.inexact, "numeric": lattice.numeric,
        "complex": lattice.complexed, "summed": lattice.summed,
    }  # fmt: skip

    # --- what a program says ---------------------------------------------------------------------
    def plain(self, x: Any) -> Any:
        """``x``, or the array that it offers to be."""
        return x

    def take(self, x: Any) -> tuple[Tensor, bool]:
        """The tensor of an array of the program's ``own``, and whether its type is weak."""
        return x, False

    def give(self, value: Tensor, weak: bool) -> Any:
        """A tensor as an array of the program's."""
        return value

    def meet(self, kinds: Sequence[Kind]) -> Kind:
        """The kind that values of ``kinds`` meet in."""
        return lattice.met(tuple(kinds))

    def known(self, kind: Any) -> np.dtype:
        """The type that another library's has here."""
        return dtypes.as_dtype(kind).np

    def of_number(self, value: Any) -> Kind:
        """The kind of a number."""
        return lattice.of_number(value, True)

    def asked(self, kind: Any, where: str, default: Any = None) -> np.dtype:
        """The type that a ``dtype=`` means (None: ``default``)."""
        return dtypes.as_dtype(default if kind is None else kind).np

    def failed(self, where: str, error: Exception, xs: Sequence[Any]) -> Exception:
        """What is raised where ``where`` fails for ``xs``."""
        return error

    def misfit(self, where: str, error: Exception, tensors: Sequence[Any]) -> Exception:
        """What is raised where operands do not broadcast."""
        return error

    def unfit(self, where: str, x: Any, place: int) -> Exception:
        """What is raised for an operand that is no array."""
        return TypeError(
            f"{where} requires ndarray or scalar arguments, got {type(x)} at position {place}."
        )

    def refuse_out(self, where: str, out: Any) -> None:
        """Raise for an ``out=`` that is given."""
        if out is not None:
            raise NotImplementedError(f"The 'out' argument to {where} is not supported.")

    # --- operands and results --------------------------------------------------------------------
    def kind_of(self, x: Any, where: str, place: int = 0) -> Kind:
        """The element type of an operand, and whether it is weak."""
        if x.__class__ is self.own:
            found, weak = self.take(x)
            return found.meta()[1], weak
        if isinstance(x, (np.ndarray, np.generic, Tensor)):
            return self.known(x.meta()[1] if isinstance(x, Tensor) else x.dtype), False
        if isinstance(x, NUMBERS):
            return self.of_number(x)
        raise self.unfit(where, x, place)

    def to_tensor(self, x: Any, kind: np.dtype) -> Tensor:
        """An operand as a tensor of that type."""
        if x.__class__ is self.own:
            return cast(self.take(x)[0], kind)
        return cast(x, kind) if isinstance(x, Tensor) else numbered(x, kind)

    def operands(
        self, where: str, xs: Iterable[Any], to: To | None = None
    ) -> tuple[list[Tensor], bool]:
        """Operands as tensors of the type they meet in (or what ``to`` makes of it), and whether it
        is weak."""
        given = [self.plain(x) for x in xs]
        kinds = [self.kind_of(x, where, i) for i, x in enumerate(given)]
        kind, weak = self.meet(kinds) if len(kinds) > 1 else kinds[0]
        if to is not None:
            kind = to(kind)
        return [self.to_tensor(x, kind) for x in given], weak

    def one(self, where: str, x: Any, to: To | None = None) -> Tensor:
        """An operand as a tensor."""
        return self.operands(where, (x,), to)[0][0]

    def weak_of(self, x: Any) -> bool:
        """Whether the type of an operand is weak."""
        return self.take(x)[1] if x.__class__ is self.own else x.__class__ in NUMBERS[1:]

    def given_back(self, value: Any, weak: bool = False) -> Any:
        """A result, or several, as arrays of the program's, of types that it has."""
        if isinstance(value, (tuple, list)):
            parts = [self.given_back(v, weak) for v in value]
            return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
        if not isinstance(value, Tensor):
            return value
        kind = value.meta()[1]
        return self.give(value if kind.itemsize < 8 else cast(value, self.known(kind)), weak)

    def bare(self, value: Any) -> Any:
        """``value`` with tensors for the arrays in it, also in lists and tuples."""
        if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
            return type(value)(map(self.bare, value))
        return self.take(value)[0] if value.__class__ is self.own else value

    def named(self, run: Any, where: str, like: Any = None) -> Any:
        """``run`` under its name in the program."""
        run.__name__ = run.__qualname__ = where
        run.__module__ = self.module
        run.__doc__ = getattr(like, "__doc__", None) or run.__doc__ or f"``{where}`` of arrays."
        if like is not None:
            parameters = inspect.signature(like).parameters.values()
            run.__signature__ = inspect.Signature(
                [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
            )
        return run

    # --- functions -------------------------------------------------------------------------------
    def unary(
        self, where: str, fn: Callable, to: To | None = None, strong: bool = False
    ) -> Callable:
        """A function of one operand; ``strong``: its result is never weak."""
        operands, give = self.operands, self.give

        def run(x: Any, /) -> Any:
            (value,), weak = operands(where, (x,), to)
            try:
                return give(fn(value), weak and not strong)
            except DTypeError as error:
                raise self.failed(where, error, (value,)) from None

        return self.named(run, where)  # type: ignore[no-any-return]

    def binary(
        self, where: str, fn: Callable, to: To | None = None, strong: bool = False
    ) -> Callable:
        """A function of two operands of one type; ``strong``: its result is never weak."""

        def run(x: Any, y: Any, /) -> Any:
            tensors, weak = self.operands(where, (x, y), to)
            try:
                return self.give(fn(*tensors), weak and not strong)
            except ShapeError as error:
                raise self.misfit(where, error, tensors) from None
            except DTypeError as error:
                raise self.failed(where, error, tensors) from None

        return self.named(run, where)  # type: ignore[no-any-return]

    def function(
        self, where: str, fn: Callable, arrays: str, rule: str, weak: bool = False
    ) -> Callable:
        """``fn`` by what a row says of it."""
        parameters = inspect.signature(fn).parameters
        order = [p for p, v in parameters.items() if v.kind is not v.VAR_KEYWORD]
        groups = [[_named(p, order[0]) for p in group.split()] for group in arrays.split("|")]
        names = {name for group in groups for name, _, _ in group}
        special = names | {"out", "dtype"} | (self.ignored - set(order))
        first, many, own = groups[0][0]
        alone = first == order[0] and not many and len(groups[0]) == 1
        free = next((k for k, p in enumerate(order) if k and p in special), len(order))
        to, gathered = self.rules[own or rule], "**" in arrays
        dropped = [name for name in self.ignored if name not in parameters]

        def run(*args: Any, **given: Any) -> Any:
            if gathered:
                args = (list(args),)
            if alone and 0 < len(args) <= free and special.isdisjoint(given):
                (value,), is_weak = self.operands(where, args[:1], to)
                out = self._called(where, fn, (value, *args[1:]), given, (value,))
                return self.given_back(out, weak and is_weak)
            bound = _bound(where, order, args, given)
            if "out" in bound:
                self.refuse_out(where, bound.pop("out"))
            for name in dropped:
                bound.pop(name, None)
            is_weak, *_ = (self._fill(where, bound, group, rule) for group in groups)
            kind = bound.pop("dtype", None) if where in self.cast else None
            if bound.get("dtype") is not None:
                bound["dtype"] = dtypes.of(self.asked(bound["dtype"], where))
                is_weak = False
            out = self._called(where, fn, (), bound, tuple(bound.values()))
            if kind is not None:
                out = floored(out, self.asked(kind, where))
            return self.given_back(out, weak and is_weak and kind is None)

        return self.named(run, where, fn)  # type: ignore[no-any-return]

    def _called(self, where: str, fn: Callable, args: tuple, given: dict, xs: tuple) -> Any:
        try:
            return fn(*args, **given)
        except _FAILURES as error:
            raise self.failed(where, error, xs) from None

    def _fill(self, where: str, bound: dict[str, Any], group: Group, rule: str) -> bool:
        """Put tensors in the places of arrays; whether their type is weak."""
        own = next((r for _, _, r in group if r), "") or rule
        loose, taken = any(r == "own" for _, _, r in group), []
        for name, many, _ in group:
            value = bound.get(name)
            if value is None:
                continue
            if not many and loose and isinstance(value, _PLAIN):
                bound[name] = self.bare(value)
                continue
            if many:
                value = self._sequence(where, value)
            taken.append((name, value, leaves(value) if many else [value]))
        xs = [x for _, _, flat in taken for x in flat]
        if not xs:
            return False
        if own == "own":
            tensors, weak = [self.one(where, x) for x in xs], all(map(self.weak_of, xs))
        else:
            tensors, weak = self.operands(where, xs, self.rules[own])
        queue = iter(tensors)
        for name, value, flat in taken:
            bound[name] = next(queue) if flat and flat[0] is value else _filled(value, queue)
        return weak

    def _sequence(self, where: str, value: Any) -> Any:
        if isinstance(value, (self.own, np.ndarray)):
            given: Any = value
            return list(given) if given.ndim else [given]
        if not isinstance(value, (list, tuple)):
            raise TypeError(f"{where} requires a sequence of arrays, got {type(value)}.")
        return value

    def table(self, text: str, sources: Iterable[Any]) -> dict[str, Callable]:
        """Functions by rows, between semicolons."""
        places, out = list(sources), {}
        for row in text.split(";"):
            head, _, names = " ".join(row.split()).partition(": ")
            arrays, _, rule = head.partition(" -> ")
            for word in names.split():
                name, _, source = word.rstrip("!").partition("=")
                fn = next(getattr(p, source or name) for p in places if hasattr(p, source or name))
                out[name] = self.function(name, fn, arrays, rule, word.endswith("!"))
        return out

    def elementwise(
        self,
        text: str,
        make: Callable,
        sources: Sequence[Any],
        strong: Iterable[str] = (),
    ) -> dict[str, Callable]:
        """Functions by rows ``rule: name[=function] ...``, between semicolons; ``make``: ``unary``
        or ``binary``; ``strong``: those whose results are never weak."""
        out = {}
        for row in text.split(";"):
            rule, _, names = " ".join(row.split()).partition(": ")
            for word in names.split():
                name, _, source = word.partition("=")
                fn = next(getattr(p, source or name) for p in sources if hasattr(p, source or name))
                out[name] = make(name, fn, self.rules[rule], name in strong)
        return out

    # --- functions that say themselves what their arguments are ----------------------------------
    def annotated(self, name: str, fn: Callable, strong: bool = False) -> Callable:
        """``fn`` by its annotations: ``Tensor`` and ``Tensors`` decide about the result's weakness,
        ``Index`` does not; an argument called ``...dtype`` or ``..._type`` is an element type."""
        signature = inspect.signature(fn)
        kinds = {p.name: str(p.annotation) for p in signature.parameters.values()}
        dropped = [option for option in self.ignored if option not in kinds]

        def run(*args: Any, **kwargs: Any) -> Any:
            for option in dropped:
                kwargs.pop(option, None)
            bound = signature.bind(*args, **kwargs)
            deciding: list[bool] = []
            for place, (key, x) in enumerate(bound.arguments.items()):
                if kinds[key] in _TENSORS:
                    many = isinstance(x, (list, tuple)) or signature.parameters[key].kind == 2
                    pairs = [
                        self.value(name, v, place + i) for i, v in enumerate(x if many else [x])
                    ]
                    deciding += [weak for _, weak in pairs] if kinds[key] != "Index" else []
                    bound.arguments[key] = tuple(t for t, _ in pairs) if many else pairs[0][0]
                elif key.endswith(("dtype", "_type")) and x is not None:
                    bound.arguments[key] = self.asked(x, name)
                else:
                    bound.arguments[key] = self.bare(x)
            told = (bound.arguments.get(k) for k in ("dtype", "preferred_element_type"))
            fixed = strong or any(k is not None for k in told)
            return self._left(fn(*bound.args, **bound.kwargs), deciding, fixed)

        return self.named(run, name, fn)  # type: ignore[no-any-return]

    def made(self, x: Any, kind: np.dtype | None, where: str = "array") -> tuple[Tensor, bool]:
        """The tensor of a number, an array, nested sequences of these or whatever NumPy takes, in
        the type ``kind`` (None: their own), and whether that is weak."""
        if isinstance(x, (list, tuple)):
            return self._nested(x, kind, where), False
        if not isinstance(x, (self.own, Tensor, np.ndarray, np.generic, *NUMBERS)):
            x = np.asarray(x)
        own, weak = self.kind_of(x, where)
        to = own if kind is None else kind
        if isinstance(x, int) and to.kind in "iu" and not isinstance(x, np.generic):
            return tensor(
                np.array(x, to)
            ), weak and kind is None  # OverflowError if it is too large
        return self.to_tensor(x, to), weak and kind is None

    def _nested(self, x: Any, kind: np.dtype | None, where: str) -> Tensor:
        flat = [self.plain(leaf) for leaf in leaves(x)]
        if kind is None:
            kinds = [self.kind_of(leaf, where) for leaf in flat]
            kind = self.meet(kinds)[0] if kinds else self.of_number(0.0)[0]
        if not any(isinstance(leaf, (self.own, Tensor)) for leaf in flat):
            return tensor(np.array(x, dtype=kind))
        parts = [self._nested(p, kind, where) if isinstance(p, (list, tuple))
                 else self.to_tensor(self.plain(p), kind) for p in x]  # fmt: skip
        return ops.stack(parts)

    def value(self, where: str, x: Any, place: int) -> tuple[Tensor, bool]:
        """An operand as a tensor in its own type, and whether that is weak."""
        x = self.plain(x)
        kind, weak = self.kind_of(x, where, place)
        return self.to_tensor(x, kind), weak

    def _left(self, out: Any, given: list[bool], strong: bool) -> Any:
        if isinstance(out, Tensor):
            return self.give(out, not strong and bool(given) and all(given))
        if isinstance(out, (tuple, list)) and all(isinstance(t, Tensor) for t in out):
            if len(out) == len(given) and not strong:
                return type(out)(self.give(t, w) for t, w in zip(out, given, strict=True))
            return type(out)(self._left(t, given, strong) for t in out)
        return out


def _bound(where: str, order: list[str], args: tuple, given: dict[str, Any]) -> dict[str, Any]:
    if len(args) > len(order):
        raise TypeError(
            f"{where}() takes {len(order)} positional arguments but {len(args)} were given"
        )
    bound = dict(zip(order, args))
    for name, value in given.items():
        if name in bound:
            raise TypeError(f"{where}() got multiple values for argument '{name}'")
        bound[name] = value
    return bound


def _named(text: str, first: str) -> tuple[str, bool, str]:
    name, _, rule = text.partition(":")
    return name.rstrip("*").replace(".", first), name.endswith("*"), rule
