"""Programs in JAX's text form. The names of primitives are lax's, where it has the operation; what
it has not goes by its own name here."""

from __future__ import annotations

import itertools
import string
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from ...core.bodies import Body, Ref, Step
from ...core.gate import Primitive
from ...core.tensor import Tensor
from ...func.custom import CustomCall
from .tracing import short_kind

_WIDTH = 80


class Named(NamedTuple):
    """A primitive, by its name."""

    name: str

    def __repr__(self) -> str:
        return self.name


_NOWHERE = SimpleNamespace(
    mesh=SimpleNamespace(empty=True, are_all_axes_explicit=False, axis_names=()), spec=()
)


class ShapedArray(NamedTuple):
    """A shape and a type."""

    shape: tuple[int, ...]
    dtype: np.dtype
    weak_type: bool = False
    sharding: Any = _NOWHERE  # that of an empty mesh: types say nothing of layouts here

    def __repr__(self) -> str:
        weak = ", weak_type=True" if self.weak_type else ""
        return f"ShapedArray({self.dtype.name}[{','.join(map(str, self.shape))}]{weak})"

    def str_short(self) -> str:
        """f32[2,3]"""
        return f"{short_kind(self.dtype)}[{','.join(map(str, self.shape))}]"


class Var:
    """A value of a program."""

    def __init__(self, aval: ShapedArray) -> None:
        self.aval = aval

    def __repr__(self) -> str:
        return f"Var(id={id(self)}):{self.aval.str_short()}"


class Literal(NamedTuple):
    """A number in a program."""

    val: Any
    aval: ShapedArray

    def __repr__(self) -> str:
        return f"{self.val}:{self.aval.str_short()}"


class Equation(NamedTuple):
    """``outvars = primitive[params] invars``."""

    primitive: Named
    invars: list[Any]
    outvars: list[Var]
    params: dict[str, Any]

    def __repr__(self) -> str:
        return _Names().equation(self, 0)[0]


class Jaxpr:
    """A program whose constants are arguments, too."""

    def __init__(
        self, constvars: list[Var], invars: list[Var], eqns: list[Equation], outvars: list[Any]
    ) -> None:
        self.constvars, self.invars, self.eqns, self.outvars = constvars, invars, eqns, outvars
        self.effects = frozenset(e.primitive.name for e in eqns if e.primitive.name in _EFFECTS)

    def __repr__(self) -> str:
        return _Names().program(self, 0)


class ClosedJaxpr:
    """A program with its constants."""

    def __init__(self, jaxpr: Jaxpr, consts: list[Any]) -> None:
        self.jaxpr, self.consts = jaxpr, consts

    literals = property(lambda self: self.consts)
    eqns = property(lambda self: self.jaxpr.eqns)
    effects = property(lambda self: self.jaxpr.effects)
    in_avals = property(lambda self: [v.aval for v in self.jaxpr.invars])
    out_avals = property(lambda self: [v.aval for v in self.jaxpr.outvars])

    def __repr__(self) -> str:
        return repr(self.jaxpr)


_EFFECTS = ("debug_print", "debug_callback", "io_callback")


def closed(body: Body, consts: Sequence[Tensor], weak: Sequence[bool], weak_outs: Sequence[bool],
           wrap: Callable[[Tensor], Any]) -> ClosedJaxpr:  # fmt: skip
    """The program of ``body``, whose first arguments are ``consts``."""
    jaxpr, kept = _program(body, consts, weak)
    outs = [
        v if isinstance(v, Literal) else _weakened(v, w)
        for v, w in zip(jaxpr.outvars, weak_outs, strict=True)
    ]
    jaxpr.outvars = outs
    return ClosedJaxpr(jaxpr, [wrap(c) for c in kept])


def _weakened(v: Var, weak: bool) -> Var:
    v.aval = v.aval._replace(weak_type=weak)
    return v


def _program(
    body: Body, consts: Sequence[Tensor] = (), weak: Sequence[bool] = ()
) -> tuple[Jaxpr, list[Tensor]]:
    """(its program, the constants that are no numbers)."""
    values: list[Any] = [Var(ShapedArray(tuple(s), np.dtype(k))) for s, k in body.metas]
    kept: list[Tensor] = []
    constvars = []
    held = range(body.count, body.count + len(body.held))
    outside = [*enumerate(consts), *zip(held, body.held, strict=True)]
    for i, t in outside:
        if not t.meta()[0] and t.__class__ is Tensor and not t.requires_grad:
            values[i] = Literal(t.array[()], values[i].aval)
        else:
            constvars.append(values[i])
            kept.append(t)
    inputs = values[len(consts) : body.count]
    for v, w in zip(inputs, weak, strict=False):
        _weakened(v, w)
    eqns = [_equation(step, values) for step in body.steps]
    return Jaxpr(constvars, inputs, eqns, [values[i] for i in body.ends]), kept


def _inlined(body: Body, invars: list[Any], outs: list[Var]) -> Jaxpr:
    """The program of a function that is called with ``invars``, whose values it has: numbers are
    its own."""
    values: list[Any] = [Var(ShapedArray(tuple(s), np.dtype(k))) for s, k in body.metas]
    values[: body.count] = invars
    for i, out in zip(body.ends, outs, strict=True):
        if i >= body.count + len(body.held):
            values[i] = out
    eqns = [_equation(step, values) for step in body.steps]
    given = [v for v in invars if isinstance(v, Var)]
    return Jaxpr([], given, eqns, [values[i] for i in body.ends])


def _equation(step: Step, values: list[Any]) -> Equation:
    outs = [values[i] for i in step.made]
    args = [values[a.number] if a.__class__ is Ref else a for a in step.args]
    given = [a for a in args if isinstance(a, (Var, Literal))]
    like = next((a.aval.dtype for a in given if a.aval.dtype.kind != "b"), np.dtype("float32"))
    invars = [
        a if isinstance(a, (Var, Literal)) else _number(a, like)
        for a in args
        if a is not None and (isinstance(a, (Var, Literal, bool, int, float, complex)))
    ]
    prim: Any = step.prim
    if prim.name == "jit":
        inner = _inlined(prim.body, invars, outs)
        invars = [v for v in invars if isinstance(v, Var)]
        return Equation(Named("jit"), invars, outs, {"name": prim.title, "jaxpr": inner})
    name, params = _translated(step, invars, outs)
    if name == "select_n" and len(invars) == 3:  # (lax has the case of False first)
        invars = [invars[0], invars[2], invars[1]]
    return Equation(Named(name), invars, outs, params)


def _number(value: complex, like: np.dtype) -> Literal:
    """A number beside values of the type ``like``."""
    kind = like
    if like.kind in "biu":
        kind = np.result_type(like, type(value)) if isinstance(value, float) else like
    kind = np.dtype("complex64") if isinstance(value, complex) else kind
    return Literal(np.asarray(value).astype(kind)[()], ShapedArray((), kind))


# --- names --------------------------------------------------------------------------------------
_NAMES = {
    "held": "stop_gradient", "where": "select_n", "matmul": "dot_general", "permute": "transpose",
    "expand": "broadcast_in_dim", "cast": "convert_element_type", "cat": "concatenate",
    "sum": "reduce_sum", "amax": "reduce_max", "amin": "reduce_min", "prod": "reduce_prod",
    "negate": "neg", "true_divide": "div", "sigmoid": "logistic", "absolute": "abs",
    "flip": "rev", "logical_not": "not", "bitwise_and": "and", "bitwise_or": "or",
    "bitwise_xor": "xor", "bitwise_not": "not", "maximum": "max", "minimum": "min",
    "all": "reduce_and", "any": "reduce_or", "argmax": "argmax", "erfinv": "erf_inv",
}  # fmt: skip


def lax_name(name: str) -> str:
    """What lax calls the primitive ``name``."""
    return _NAMES.get(name, name)


def _axes(p: dict) -> dict:
    return {"axes": tuple(p.get("dims") or ())}


def _dot(p: dict, ins: list, outs: list) -> dict:
    a, b = (v.aval.shape for v in ins[:2])
    batch = list(range(min(len(a), len(b)) - 2))
    left, right = [len(a) - 1], [max(len(b) - 2, 0)]
    return {
        "dimension_numbers": f"(({left}, {right}), ({batch}, {batch}))",
        "preferred_element_type": outs[0].aval.dtype.name,
    }


_PARAMS: dict[str, Callable[[dict, list, list], dict]] = {
    "dot_general": _dot,
    "reduce_sum": lambda p, ins, outs: {**_axes(p), "out_sharding": None},
    "reduce_max": lambda p, ins, outs: _axes(p),
    "reduce_min": lambda p, ins, outs: _axes(p),
    "reshape": lambda p, ins, outs: {
        "dimensions": None, "new_sizes": outs[0].aval.shape, "sharding": None},
    "transpose": lambda p, ins, outs: {
        "permutation": tuple(p.get("dims") or range(len(ins[0].aval.shape))[::-1])},
    "broadcast_in_dim": lambda p, ins, outs: (
        {} if not ins[0].aval.shape else {
            "broadcast_dimensions": tuple(range(len(outs[0].aval.shape)))[
                len(outs[0].aval.shape) - len(ins[0].aval.shape):],
            "shape": outs[0].aval.shape, "sharding": None}),
    "convert_element_type": lambda p, ins, outs: {
        "new_dtype": outs[0].aval.dtype.name, "weak_type": False},
    "concatenate": lambda p, ins, outs: {"dimension": p.get("dim", 0)},
}  # fmt: skip


def _translated(step: Step, ins: list, outs: list) -> tuple[str, dict]:
    prim: Primitive = step.prim
    if any(hasattr(prim, n) for n in ("body", "branches")):
        return prim.name, _nested(prim)
    name = _NAMES.get(prim.name, prim.name)
    if prim.name == "pow" and isinstance(ins[1], Literal) and float(ins[1].val).is_integer():
        power = ins.pop(1)
        return "integer_pow", {"y": int(power.val)}
    made = _PARAMS.get(name)
    if made is not None:
        return name, made(step.params, ins, outs)
    return name, {k: v for k, v in sorted(step.params.items()) if v is not None}


def _nested(prim: Any) -> dict[str, Any]:
    """What is printed of an instruction with programs of its own."""
    if isinstance(prim, CustomCall):
        inner = _program(prim.body)[0]
        words = {k: getattr(v, "__name__", v) for k, v in prim.custom.params.items()}
        name = words.pop("name", prim.name)
        return {"name": name, **dict(sorted({**words, "call_jaxpr": inner}.items()))}
    found: dict[str, Any] = {}
    if hasattr(prim, "length"):
        found = {"jaxpr": _program(prim.body)[0], "length": prim.length, "num_carry": prim.carries,
                 "num_consts": prim.consts, "reverse": prim.reverse, "unroll": 1}  # fmt: skip
    elif hasattr(prim, "cond"):
        found = {"body_jaxpr": _program(prim.body)[0], "body_nconsts": prim.of_body,
                 "cond_jaxpr": _program(prim.cond)[0], "cond_nconsts": prim.of_cond}  # fmt: skip
    elif hasattr(prim, "branches"):
        found = {"branches": [_program(b)[0] for b in prim.branches]}
    return found


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

    def typed(self, vs: Sequence[Var]) -> str:
        """Values with their types."""
        return " ".join(f"{self.name(v)}:{v.aval.str_short()}" for v in vs)

    def program(self, p: Jaxpr, indent: int, room: int = 0) -> str:
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
            f"{v.aval.str_short()}"
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
        if isinstance(v, Jaxpr):
            return self.program(v, indent, room)
        if isinstance(v, list) and v and all(isinstance(x, Jaxpr) for x in v):
            pad = " " * (indent + 2)
            inner = [pad + self.program(x, indent + 2) for x in v]
            return "\n".join(["(", *inner, f"{' ' * indent})"])
        return str(v)


__all__ = ["ClosedJaxpr", "Equation", "Jaxpr", "Literal", "ShapedArray", "Var", "closed"]
