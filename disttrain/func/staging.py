"""Staging: a function, run once on values without numbers, as a program of what it did.

``stage(fn, metas)`` gives a ``Program``: equations in order, each with what it applies (a primitive,
or a ``Call`` of what has programs of its own). A program is run by applying them anew, through the
gate: on plain tensors, with the tape, or inside any other transform. Python runs while it is staged,
and not again.

(Autodidax, "Part 2: jaxprs"; Frostig et al. 2018, "Compiling machine learning programs via
high-level tracing".)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..backends.null import NullArray
from ..context import thread
from ..core.gate import Primitive, Tracer
from ..core.tensor import Tensor, wrap
from ..errors import CaptureError
from ..ops.declare import primitive
from .levels import Level, settle

_new = object.__new__
Meta = tuple[tuple[int, ...], Any]  # a shape, and numpy's dtype


class Abstract(NullArray):
    """A shape and a type, for the time of staging: it lies where numbers will."""

    __slots__ = ()
    place = ("cpu", None)

    def copy(self, order: str = "K") -> Abstract:
        return Abstract(self.shape, self.dtype)

    ones = zeros = copy  # type: ignore[assignment]


class Value:
    """A value of a program: its shape and type."""

    __slots__ = ("meta",)

    def __init__(self, meta: Meta) -> None:
        self.meta = (tuple(meta[0]), np.dtype(meta[1]))


@dataclass(frozen=True, eq=False)
class Equation:
    """``outputs = head(*args, **params)``; ``args`` are Values and static things."""

    head: Any
    args: tuple
    params: dict[str, Any]
    outputs: tuple[Value, ...]

    @property
    def effect(self) -> bool:
        """Whether it must run even when nobody uses its outputs."""
        head = self.head
        if isinstance(head, Call):
            return head.effect
        return head.random or head.checks or head.outward


class Call:
    """What an equation applies, where that is no primitive: a function of tensors under a name.

    ``run(*tensors)`` gives a tensor, or a tuple of them where ``multi``. ``programs``: those that
    it runs, by the names that they have in print; ``params``: what else is printed.
    """

    def __init__(
        self, name: str, run: Callable[..., Any], programs: dict[str, Any] | None = None,
        params: dict[str, Any] | None = None, *, multi: bool = True, effect: bool = False,
    ) -> None:  # fmt: skip
        self.name, self.run, self.multi = name, run, multi
        self.programs, self.params = programs or {}, params or {}
        self.effect = effect or any(p.effect for p in self.programs.values())

    def __call__(self, *args: Any) -> Any:
        return self.run(*args)

    def __repr__(self) -> str:
        return f"<call {self.name}>"


@dataclass(frozen=True, eq=False)
class Program:
    """A staged function. ``constants``: tensors from outside that it uses, by their Values."""

    inputs: tuple[Value, ...]
    constants: dict[Value, Tensor]
    equations: tuple[Equation, ...]
    outputs: tuple[Any, ...]  # Values, and what was no tensor
    last: dict[int, tuple[Value, ...]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "last", _last_uses(self))

    @property
    def effect(self) -> bool:
        """Whether it does more than give its outputs."""
        return any(e.effect for e in self.equations)

    @property
    def open(self) -> bool:
        """Whether it depends on values of the call that staged it: of other transforms, or of the
        tape."""
        return any(isinstance(t, Tracer) or t.requires_grad for t in self.constants.values())

    def __call__(self, *inputs: Tensor) -> list:
        return self.run(inputs, tuple(self.constants.values()))

    def run(self, inputs: Sequence[Tensor], constants: Sequence[Tensor]) -> list:
        """The outputs, for these inputs; ``constants`` stand for those that it has."""
        if len(inputs) != len(self.inputs):
            raise CaptureError(f"a program of {len(self.inputs)} inputs was given {len(inputs)}")
        now: dict[Any, Any] = dict(zip(self.constants, constants, strict=True))
        now.update(zip(self.inputs, inputs, strict=True))
        for i, e in enumerate(self.equations):
            out = e.head(*[now[a] if a.__class__ is Value else a for a in e.args], **e.params)
            if e.head.multi:
                now.update(zip(e.outputs, out, strict=True))
            else:
                now[e.outputs[0]] = out
            for v in self.last.get(i, ()):
                del now[v]
        return [now[o] if o.__class__ is Value else o for o in self.outputs]


def _last_uses(program: Program) -> dict[int, tuple[Value, ...]]:
    """After which equation a value is not used any more."""
    kept = {o for o in program.outputs if isinstance(o, Value)} | set(program.constants)
    seen: set[Any] = set(kept)
    out: dict[int, tuple[Value, ...]] = {}
    for i in reversed(range(len(program.equations))):
        e = program.equations[i]
        new = {a for a in (*e.args, *e.outputs) if isinstance(a, Value)} - seen
        if new:
            out[i] = tuple(new)
            seen |= new
    return out


class StageTracer(Tracer):
    """A value that a program will have. It has no numbers."""

    value: Value | None  # (of a constant that no equation has used yet: None)
    constant: Tensor | None

    def meta(self) -> tuple:
        return self.inner.array.shape, self.inner.array.dtype


class Stage(Level):
    """The level in which a function is staged."""

    name = "staging"
    draws = True

    def __init__(self) -> None:
        super().__init__()
        self.equations: list[Equation] = []
        self.constants: dict[int, tuple[Value, Tensor]] = {}

    def wrap(self, meta: Meta, value: Value | None, constant: Tensor | None = None) -> StageTracer:
        out = _new(StageTracer)
        out.inner, out.interp = wrap(Abstract(*meta)), self
        out.value, out.constant = value, constant
        return out

    def lift(self, value: Tensor) -> StageTracer:
        return self.wrap(value.meta(), None, value)

    def detached(self, tracer: Tracer) -> StageTracer:
        return self.equation(stop_gradient, (tracer,), {})

    def process(self, prim: Primitive, args: tuple, params: dict) -> Any:
        self._check(prim)
        return self.equation(prim, args, params)

    def apply_function(self, cls: type, args: tuple, kwargs: dict) -> Any:
        """A custom Function: an equation that applies it anew. Its forward says the shapes."""
        return stage_function(self, cls, args, kwargs)

    def equation(self, head: Any, args: tuple, params: dict, metas: Any = None) -> Any:
        """Add an equation. ``metas``: of its outputs, where ``head`` is no primitive."""
        if metas is None:
            given = [Abstract(*a.meta()) if isinstance(a, Tensor) else a for a in args]
            found = head.compute(given, params)
            metas = [(x.shape, x.dtype) for x in (found if head.multi else (found,))]
        outs = tuple(Value(m) for m in metas)
        names = tuple(self.value(a) if isinstance(a, Tensor) else a for a in args)
        self.equations.append(Equation(head, names, params, outs))
        tracers = tuple(self.wrap(v.meta, v) for v in outs)
        return tracers if head.multi else tracers[0]

    def value(self, t: Tensor) -> Value:
        """The Value of a tensor; one of the world outside is a constant."""
        if isinstance(t, StageTracer) and t.interp is self:
            if t.value is not None:
                return t.value
            assert t.constant is not None
            t = t.constant
        known = self.constants.get(id(t))
        if known is None:
            known = self.constants[id(t)] = Value(t.meta()), t
        return known[0]

    def _check(self, prim: Primitive) -> None:
        if self.over:
            raise CaptureError(
                f"{prim.name}: a value from inside {self} is used after the transform returned; "
                "return it from the transformed function instead of keeping it elsewhere"
            )
        if prim.mutates:
            raise CaptureError(f"{prim.name}: writes to a tensor inside {self}")

    def program(self, inputs: Sequence[StageTracer], outputs: Sequence[Any]) -> Program:
        """What was staged, with these results; equations that nobody needs are left out."""
        outs = tuple(self.value(o) if isinstance(o, Tensor) else o for o in outputs)
        needed = {o for o in outs if isinstance(o, Value)}
        kept = []
        for e in reversed(self.equations):
            if e.effect or not needed.isdisjoint(e.outputs):
                kept.append(e)
                needed |= {a for a in e.args if isinstance(a, Value)}
        constants = {v: t for v, t in self.constants.values() if v in needed}
        given = tuple(x.value for x in inputs)
        return Program(given, constants, tuple(reversed(kept)), outs)  # type: ignore[arg-type]


def stage(fn: Callable[..., Sequence[Any]], metas: Sequence[Meta]) -> Program:
    """The program of ``fn``, a function of as many tensors as there are ``metas`` (shapes and
    types) that gives a list. What it gives that is no tensor is given by each run as it is."""
    level = Stage()
    with level.running():
        inputs = [level.wrap(m, Value(m)) for m in metas]
        outputs = [settle(o) for o in fn(*inputs)]
        return level.program(inputs, outputs)


def staging() -> Stage | None:
    """The level in which the calling code is staged, where no other transform is inside it."""
    stack = thread.stack
    level = stack[-1] if stack else None
    return level if isinstance(level, Stage) else None


def stage_of(values: Sequence[Any]) -> Stage | None:
    """The level of which the highest of ``values`` are, where that stages a function; where none
    of them is of any level, the one that the calling code runs in."""
    levels = [v.interp for v in values if isinstance(v, Tracer)]
    top = max(levels, key=lambda x: x.level) if levels else None
    if top is not None:
        return top if isinstance(top, Stage) else None
    return staging()


def stage_function(level: Stage, cls: Any, args: tuple, kwargs: dict) -> Any:
    """An equation that applies the custom Function ``cls``."""
    tensors = [a for a in args if isinstance(a, Tensor)]
    places = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
    several: list[bool] = []

    def apply(*given: Tensor) -> Any:
        full = list(args)
        for i, t in zip(places, given, strict=True):
            full[i] = t
        return cls.apply(*full, **kwargs)

    def outputs(*given: Tensor) -> list:
        out = apply(*given)
        several.append(isinstance(out, tuple))
        return list(out) if isinstance(out, tuple) else [out]

    program = stage_plain(outputs, [t.meta() for t in tensors])
    metas = [o.meta for o in program.outputs]
    multi = several[0]
    call = Call(cls.__name__, apply, {"forward": program}, multi=multi)
    return level.equation(call, tuple(tensors), {}, metas)


def stage_plain(fn: Callable[..., Sequence[Any]], metas: Sequence[Meta]) -> Program:
    """``stage`` for the shapes of what ``fn`` gives alone."""
    return stage(fn, metas)


# Its operand, whose derivative is zero.
stop_gradient = primitive(
    "stop_gradient",
    lambda a: a,
    "a",
    batch=lambda args, dims, params, size: (stop_gradient(*args), dims[0]),
    shape=lambda a: (a.shape, a.dtype),
    samples=lambda rng: [((rng.standard_normal((2, 3)),), {})],
)

__all__ = [
    "Abstract", "Call", "Equation", "Meta", "Program", "Stage", "StageTracer", "Value", "stage",
    "stage_of", "staging", "stop_gradient",
]  # fmt: skip
