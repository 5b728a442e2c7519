"""Staging: a function of tensors becomes a ``Body`` without being run on numbers.

Its values have a shape and a type only. What it uses of the world around it becomes more arguments
of the body (``Staged.consts``), so that transforms outside of the loop follow it there. Python runs
once; numbers cannot be read, nothing can be written to, no random numbers be drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import tree
from ..backends.null import NullArray
from ..context import thread
from ..core.backward.function import Function, FunctionCtx, run
from ..core.bodies import Body, Ref, Step, held
from ..core.gate import Primitive, Tracer
from ..core.tensor import Tensor, wrap
from ..core.types.device import CPU
from ..errors import CaptureError
from .functions import Recorded
from .levels import Level, check, settle

_new = object.__new__


class StagedTracer(Tracer):
    """A value of a body: ``inner`` is a tensor without data, ``number`` its name."""

    number: int

    def meta(self) -> tuple:
        return self.inner.meta()

    @property
    def device(self) -> Any:
        return self.interp.device

    @property
    def is_meta(self) -> bool:
        return False


class Stage(Level):
    """One function that is being staged."""

    draws = staging = True
    name = "the body of a loop or a branch"

    def __init__(self, device: Any, about: Any = None) -> None:
        super().__init__()
        self.device, self.about = device, about
        self.steps: list[Step] = []
        self.metas: list[tuple] = []
        self.consts: dict[int, tuple[Tensor, StagedTracer]] = {}  # by id
        self.keeps_mode = False  # whether what is computed in a ``no_grad`` is constant

    def new(self, meta: tuple) -> StagedTracer:
        """A value of this shape and type."""
        out = _new(StagedTracer)
        out.inner, out.number, out.interp = wrap(NullArray(*meta)), len(self.metas), self
        self.metas.append((tuple(meta[0]), np.dtype(meta[1])))
        return out

    def lift(self, value: Tensor) -> StagedTracer:
        found = self.consts.get(id(value))
        if found is None:
            found = self.consts[id(value)] = value, self.new(value.meta())
        out = self.lift_like(found[1])
        assert isinstance(out, StagedTracer)
        return out

    def detached(self, tracer: Tracer) -> StagedTracer:
        out = self.process(held, (tracer,), {})
        assert isinstance(out, StagedTracer)
        return out

    def process(self, prim: Primitive, args: tuple, params: dict) -> Any:
        check(self, prim)
        if prim.random:
            raise CaptureError(
                f"{prim.name}: random numbers are drawn in {self}, which would be the same in "
                "every turn; draw them outside"
            )
        own = [a if not isinstance(a, Tensor) or self.owns(a) else self.lift(a) for a in args]
        metas = _results(prim, [NullArray(*a.meta()) if isinstance(a, Tensor) else a for a in own],
                         params)  # fmt: skip
        outs = tuple([self.new(meta) for meta in metas])
        refs = tuple([Ref(a.number) if isinstance(a, StagedTracer) else a for a in own])
        self.steps.append(Step(prim, refs, params, [o.number for o in outs]))
        if self.keeps_mode and not thread.grad_enabled and prim is not held:
            outs = tuple([self.detached(o) for o in outs])
        return outs if prim.multi else outs[0]

    def apply_function(self, cls: type, args: tuple, kwargs: dict) -> Any:
        return _stage_function(self, cls, args, kwargs)

    def inputs_of(self, value: Any) -> set[int]:
        """The numbers of all values that ``value`` depends on."""
        found = {value.number}
        for step in reversed(self.steps):
            if not found.isdisjoint(step.made):
                found |= {a.number for a in step.args if a.__class__ is Ref}
        return found

    def number_of(self, value: Tensor) -> int:
        """The name of a result."""
        own = value if self.owns(value) else self.lift(value)
        return own.number  # type: ignore[attr-defined]


def _results(prim: Primitive, given: list, params: dict) -> list[tuple]:
    """Shapes and types of what ``prim`` gives."""
    if prim.shape is None:
        raise CaptureError(
            f"{prim.name}: the shape of its result depends on values, which are not known in the "
            "body of a loop or a branch"
        )
    try:
        found = prim.shape(*given, **params)
    except AttributeError:  # (rules of a few are written for arrays that have data)
        ones = [np.ones(a.shape, a.dtype) if isinstance(a, NullArray) else a for a in given]
        out = prim.forward(*ones, **params)
        found = [(o.shape, o.dtype) for o in (out if prim.multi else (out,))]
        return found
    return list(found) if prim.multi else [tuple(found)]


class Program(NamedTuple):
    """What was staged, without the function that it was and the values of its results."""

    body: Body
    consts: list[Tensor]

    @property
    def results(self) -> list[tuple]:
        return self.body.results


class Staged:
    """A function that was staged: its ``body``, whose first arguments are ``consts``, and how what
    it returned is put together (``rebuild``) of its results."""

    def __init__(
        self, body: Body, consts: list[Tensor], rebuild: Callable, result: Any, fn: Callable
    ) -> None:
        self.body, self.consts, self.rebuild, self.form = body, consts, rebuild, result
        self.fn = fn  # the function itself

    @property
    def program(self) -> Program:
        """To be kept for longer than the function lives."""
        return Program(self.body, self.consts)

    @property
    def results(self) -> list[tuple]:
        return self.body.results


def stage(
    fn: Callable[..., Any], metas: Sequence[tuple], device: Any = CPU, closed: bool = False,
    about: Any = None, keeps_mode: bool = False,
) -> Staged:  # fmt: skip
    """``fn`` of as many tensors of these shapes and types; it returns a structure of tensors.
    ``closed``: what it uses besides are constants, which the body keeps. ``about``: the function,
    for messages. ``keeps_mode``: what it computes in a ``no_grad`` of its own is constant."""
    level = Stage(device, about)
    level.keeps_mode = keeps_mode and thread.grad_enabled
    with level.running():
        given = [level.new(meta) for meta in metas]
        inputs = [level.lift_like(g) for g in given]
        result = settle(fn(*inputs))
        for before, after in zip(given, inputs, strict=True):
            if after.inner is not before.inner:
                raise CaptureError(f"{level}: one of its arguments is written to in place")
        leaves, rebuild = tree.flatten(result)
        for leaf in leaves:
            if not isinstance(leaf, Tensor):
                raise CaptureError(f"{level}: it gives a {type(leaf).__name__}; tensors are needed")
        ends = [level.number_of(leaf) for leaf in leaves]
    consts = list(level.consts.values())
    numbers = [tracer.number for _, tracer in consts]
    held = [value for value, _ in consts] if closed else []
    assert not any(isinstance(t, Tracer) for t in held), "it uses values of other transforms"
    body = _reordered(level, len(metas), numbers, ends, held)
    return Staged(body, [] if closed else [value for value, _ in consts], rebuild, result, fn)


def known_results(
    fn: Callable[..., Any], metas: Sequence[tuple]
) -> list[tuple[tuple, Tensor | None]]:
    """Of ``fn`` of tensors that are not known: shape and type of each of its results, and the value
    of one that depends on none of them."""
    staged = stage(fn, metas)
    body, count = staged.body, len(staged.consts)
    open_ones = set(range(count, count + len(metas)))
    for step in body.steps:
        if any(a.__class__ is Ref and a.number in open_ones for a in step.args):
            open_ones.update(step.made)
    values: list[Any] = [None] * len(body.ends)
    if any(end not in open_ones for end in body.ends):
        zeros = [wrap(np.zeros(shape, kind)) for shape, kind in metas]
        found = body(*staged.consts, *zeros)
        values = [None if e in open_ones else v for e, v in zip(body.ends, found, strict=True)]
    return list(zip(body.results, values, strict=True))


def _reordered(
    level: Stage, count: int, consts: list[int], ends: list[int], held: list[Tensor]
) -> Body:
    """The body with values from outside as its first arguments, or ``held``."""
    made = [i for step in level.steps for i in step.made]
    order = [*range(count), *consts, *made] if held else [*consts, *range(count), *made]
    new = {old: i for i, old in enumerate(order)}
    steps = [
        Step(s.prim, tuple([Ref(new[a.number]) if a.__class__ is Ref else a for a in s.args]),
             s.params, [new[i] for i in s.made])
        for s in level.steps
    ]  # fmt: skip
    metas = [level.metas[old] for old in order]
    given = count + (0 if held else len(consts))
    return Body(given, steps, metas, [new[i] for i in ends], held)


# --- custom functions ---------------------------------------------------------------------------
class FunctionCall(Primitive):
    """A custom ``autograd.Function`` as a step: its forward as a body; on Tensors itself."""

    def __init__(self, cls: Any, args: tuple, kwargs: dict, body: Body, several: bool) -> None:
        super().__init__(cls.__name__, self._forward, ())
        self.cls, self.whole, self.kwargs, self.body = cls, args, kwargs, body
        self.multi, self.kinds, self.several = True, True, several
        self.shape = lambda *given: body.results

    def _forward(self, *arrays: Any) -> list:
        return self.body.run()(list(arrays))

    def compute(self, arrays: list | tuple, params: dict) -> Any:
        return self.body.run()(list(arrays))

    def __call__(self, *args: Any, **params: Any) -> Any:
        if not any(isinstance(a, Tensor) for a in args):
            return self.compute(args, params)
        given = iter(args[-sum(a is None for a in self.whole) :])
        whole = [next(given) if a is None else a[0] for a in self.whole]
        out = self.cls.apply(*whole, **self.kwargs)
        return out if self.several else (out,)


def _stage_function(level: Any, cls: Any, args: tuple, kwargs: dict) -> Any:
    if thread.grad_enabled and any(level.owns(a) and a.graph_node() is not None for a in args):
        return run(Recorded, FunctionCtx(), (_stage_function, level, cls, kwargs, *args), {})
    tensors = [a for a in args if isinstance(a, Tensor)]
    whole = tuple([None if isinstance(a, Tensor) else (a,) for a in args])
    apart = cls.setup_context is not Function.setup_context

    def forward(*values: Tensor) -> Any:
        given = iter(values)
        full = [next(given) if a is None else a[0] for a in whole]
        return (
            cls.forward(*full, **kwargs) if apart else cls.forward(FunctionCtx(), *full, **kwargs)
        )

    staged = stage(forward, [t.meta() for t in tensors], level.device)
    several = isinstance(staged.form, tuple)
    call = FunctionCall(cls, whole, kwargs, staged.body, several)
    outs = level.process(call, (*staged.consts, *tensors), {})
    return staged.rebuild(list(outs))
