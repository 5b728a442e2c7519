"""Programs as data and as text: variables, numbers and equations, in the notation of lambda terms.

A ``Style`` says what primitives and their parameters are called, and what classes values are of.
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...core.bodies import Body, Ref, Step
from ...core.gate import Primitive
from ...core.tensor import Tensor
from ..custom import CustomCall
from ..structured_bodies import kind_name

_WIDTH = 80
_SHORT = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u", "complex": "c"}
_EFFECTS = ("debug_print", "debug_callback", "io_callback")


def short_kind(kind: np.dtype) -> str:
    """A type in short: f32."""
    name = kind_name(kind)
    stem = name.rstrip("0123456789")
    return f"{_SHORT[stem]}{name[len(stem) :]}" if stem in _SHORT else name


class ArrayType(NamedTuple):
    """A shape and a type, and whether that gives way to others."""

    shape: tuple[int, ...]
    dtype: np.dtype
    weak_type: bool = False

    def str_short(self) -> str:
        """f32[2,3]"""
        return f"{short_kind(self.dtype)}[{','.join(map(str, self.shape))}]"


class Named(NamedTuple):
    """A primitive, by its name."""

    name: str

    def __repr__(self) -> str:
        return self.name


class Variable:
    """A value of a program, of which the type is known."""

    def __init__(self, type: ArrayType) -> None:  # noqa: A002
        self.type = type

    def __repr__(self) -> str:
        return f"Var(id={id(self)}):{self.type.str_short()}"


class Literal(NamedTuple):
    """A number in a program."""

    val: Any
    type: ArrayType

    def __repr__(self) -> str:
        return f"{self.val}:{self.type.str_short()}"


class Equation(NamedTuple):
    """``outvars = primitive[params] invars``."""

    primitive: Named
    invars: list[Any]
    outvars: list[Variable]
    params: dict[str, Any]

    def __repr__(self) -> str:
        return _Names().equation(self, 0)[0]


class Listing:
    """A program, whose constants are arguments, too."""

    def __init__(
        self, constvars: list[Variable], invars: list[Variable], eqns: list[Equation],
        outvars: list[Any],
    ) -> None:  # fmt: skip
        self.constvars, self.invars, self.eqns, self.outvars = constvars, invars, eqns, outvars
        self.effects = frozenset(e.primitive.name for e in eqns if e.primitive.name in _EFFECTS)

    def __repr__(self) -> str:
        return _Names().program(self, 0)


class Style(NamedTuple):
    """What programs are told in: ``names`` of primitives, where they are not their own;
    ``parameters`` by such a name: what is shown, of (params, arguments, results); ``word``: what a
    program inside of another is called; and the classes of values."""

    names: Mapping[str, str] = {}
    parameters: Mapping[str, Callable[[dict, list, list], dict]] = {}
    word: str = "program"
    typed: Callable[..., Any] = ArrayType
    variable: Callable[[Any], Any] = Variable
    literal: Callable[[Any, Any], Any] = Literal

    def name(self, primitive: str) -> str:
        """What ``primitive`` is called."""
        return self.names.get(primitive, primitive)


def listed(
    style: Style, body: Body, consts: Sequence[Tensor], weak: Sequence[bool] = (),
    weak_outs: Sequence[bool] = (),
) -> tuple[Listing, list[Tensor]]:  # fmt: skip
    """``body``, whose first arguments are ``consts``, and those of these that are no numbers.
    ``weak``, ``weak_outs``: which arguments' and results' types give way."""
    told, kept = _Telling(style).program(body, consts, weak)
    for v, w in zip(told.outvars, weak_outs, strict=False):
        if not isinstance(v, Literal):
            _weakened(v, w)
    return told, kept


def _weakened(v: Variable, weak: bool) -> None:
    v.type = v.type._replace(weak_type=weak)


class _Telling:
    """Bodies as listings, in a style."""

    def __init__(self, style: Style) -> None:
        self.style = style

    def _values(self, body: Body) -> list[Any]:
        style = self.style
        return [style.variable(style.typed(tuple(s), np.dtype(k))) for s, k in body.metas]

    def program(
        self, body: Body, consts: Sequence[Tensor] = (), weak: Sequence[bool] = ()
    ) -> tuple[Listing, list[Tensor]]:
        """(its listing, the constants that are no numbers)."""
        values, kept, constvars = self._values(body), [], []
        held = range(body.count, body.count + len(body.held))
        for i, t in [*enumerate(consts), *zip(held, body.held, strict=True)]:
            if not t.meta()[0] and t.__class__ is Tensor and not t.requires_grad:
                values[i] = self.style.literal(t.array[()], values[i].type)
            else:
                constvars.append(values[i])
                kept.append(t)
        inputs = values[len(consts) : body.count]
        for v, w in zip(inputs, weak, strict=False):
            _weakened(v, w)
        eqns = [self.equation(step, values) for step in body.steps]
        return Listing(constvars, inputs, eqns, [values[i] for i in body.ends]), kept

    def inlined(self, body: Body, invars: list[Any], outs: list[Any]) -> Listing:
        """A function that is called with ``invars``, whose values it has: numbers are its own."""
        values = self._values(body)
        values[: body.count] = invars
        for i, out in zip(body.ends, outs, strict=True):
            if i >= body.count + len(body.held):
                values[i] = out
        eqns = [self.equation(step, values) for step in body.steps]
        given = [v for v in invars if isinstance(v, Variable)]
        return Listing([], given, eqns, [values[i] for i in body.ends])

    def equation(self, step: Step, values: list[Any]) -> Equation:
        """One step."""
        outs = [values[i] for i in step.made]
        args = [values[a.number] if a.__class__ is Ref else a for a in step.args]
        given = [a for a in args if isinstance(a, (Variable, Literal))]
        like = next((a.type.dtype for a in given if a.type.dtype.kind != "b"), np.dtype("float32"))
        invars = [
            a if isinstance(a, (Variable, Literal)) else self._number(a, like)
            for a in args
            if isinstance(a, (Variable, Literal, bool, int, float, complex))
        ]
        prim: Any = step.prim
        if prim.name == "jit":
            inner = self.inlined(prim.body, invars, outs)
            params = {"name": prim.title, self.style.word: inner}
            return Equation(
                Named("jit"), [v for v in invars if isinstance(v, Variable)], outs, params
            )
        name, params = self._translated(step, invars, outs)
        if name == "select_n" and len(invars) == 3:  # (which has the case of False first)
            invars = [invars[0], invars[2], invars[1]]
        return Equation(Named(name), invars, outs, params)

    def _number(self, value: complex, like: np.dtype) -> Any:
        """A number beside values of the type ``like``."""
        kind = like
        if like.kind in "biu":
            kind = np.result_type(like, type(value)) if isinstance(value, float) else like
        kind = np.dtype("complex64") if isinstance(value, complex) else kind
        return self.style.literal(np.asarray(value).astype(kind)[()], self.style.typed((), kind))

    def _translated(self, step: Step, ins: list, outs: list) -> tuple[str, dict]:
        prim: Primitive = step.prim
        if any(hasattr(prim, n) for n in ("body", "branches")):
            return prim.name, self._nested(prim)
        name = self.style.name(prim.name)
        if prim.name == "pow" and isinstance(ins[1], Literal) and float(ins[1].val).is_integer():
            power = ins.pop(1)
            return "integer_pow", {"y": int(power.val)}
        made = self.style.parameters.get(name)
        if made is not None:
            return name, made(step.params, ins, outs)
        return name, {k: v for k, v in sorted(step.params.items()) if v is not None}

    def _nested(self, prim: Any) -> dict[str, Any]:
        """What is shown of an instruction with programs of its own."""
        word = self.style.word
        if isinstance(prim, CustomCall):
            words = {k: getattr(v, "__name__", v) for k, v in prim.custom.params.items()}
            name = words.pop("name", prim.name)
            inner = self.program(prim.body)[0]
            return {"name": name, **dict(sorted({**words, f"call_{word}": inner}.items()))}
        if hasattr(prim, "length"):
            return {word: self.program(prim.body)[0], "length": prim.length,
                    "num_carry": prim.carries, "num_consts": prim.consts, "reverse": prim.reverse,
                    "unroll": 1}  # fmt: skip
        if hasattr(prim, "cond"):
            both = {f"{n}_{word}": self.program(getattr(prim, n))[0] for n in ("body", "cond")}
            return {**both, "body_nconsts": prim.of_body, "cond_nconsts": prim.of_cond}
        if hasattr(prim, "branches"):
            return {"branches": [self.program(b)[0] for b in prim.branches]}
        return {}


# --- text ---------------------------------------------------------------------------------------
def _words() -> Iterator[str]:
    for size in itertools.count(1):
        for letters in itertools.product(string.ascii_lowercase, repeat=size):
            yield "".join(letters)


class _Names:
    """Values' names in a text, in the order in which they appear."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.fresh = _words()

    def name(self, v: Any) -> str:
        """A value's name; a number as itself."""
        if isinstance(v, Literal):
            return repr(v)
        if id(v) not in self.names:
            self.names[id(v)] = next(self.fresh)
        return self.names[id(v)]

    def typed(self, vs: Sequence[Variable]) -> str:
        """Values with their types."""
        return " ".join(f"{self.name(v)}:{v.type.str_short()}" for v in vs)

    def program(self, p: Listing, indent: int, room: int = 0) -> str:
        """A program, whose lines after the first are indented. ``room``: what stands before it."""
        used = {id(a) for e in p.eqns for a in e.invars} | {id(o) for o in p.outvars}
        consts = f" {self.typed(p.constvars)}" if p.constvars else ""
        ins = f" {self.typed(p.invars)}" if p.invars else " "
        head = f"{{ lambda{consts or ' '};{ins}. let"
        lines = [self.equation(e, indent + 4, used) for e in p.eqns]
        outs = ", ".join(self.name(o) for o in p.outvars)
        tail = f"in ({outs}{',' if len(p.outvars) == 1 else ''}) }}"
        flat = "; ".join(line[0] for line in lines)
        one = f"{head} {flat} {tail}"
        if all(len(line) == 1 for line in lines) and indent + room + len(one) <= _WIDTH:
            return one
        pad = " " * (indent + 4)
        whole = [head]
        for line in lines:
            whole += [pad + line[0], *line[1:]]
        return "\n".join([*whole, f"{' ' * (indent + 2)}{tail}"])

    def equation(self, e: Equation, indent: int, used: set[int] | None = None) -> list[str]:
        """The lines of an equation: the first without, the others with indentation."""
        left = " ".join(
            f"{'_' if used is not None and id(v) not in used else self.name(v)}:"
            f"{v.type.str_short()}"
            for v in e.outvars
        )
        left = f"{left} = " if left else ""
        args = "".join(f" {self.name(v)}" for v in e.invars)
        if not e.params:
            return [f"{left}{e.primitive}{args}"]
        texts = [f"{k}={self.value(v, indent + 2, len(k) + 1, e)}" for k, v in e.params.items()]
        one = f"{left}{e.primitive}[{' '.join(texts)}]{args}"
        if "\n" not in one and indent + len(one) <= _WIDTH:
            return [one]
        pad = " " * (indent + 2)
        return [f"{left}{e.primitive}[", *[pad + t for t in texts], f"{' ' * indent}]{args}"]

    def value(self, v: Any, indent: int, room: int, e: Equation) -> str:
        """A parameter."""
        if isinstance(v, Listing):
            return self.program(v, indent, room)
        if isinstance(v, list) and v and all(isinstance(x, Listing) for x in v):
            pad = " " * (indent + 2)
            inner = [pad + self.program(x, indent + 2) for x in v]
            return "\n".join(["(", *inner, f"{' ' * indent})"])
        return str(v)


__all__ = [
    "ArrayType", "Equation", "Listing", "Literal", "Style", "Variable", "listed", "short_kind",
]  # fmt: skip
