"""Functions with derivative rules of their own, inside every transform.

``apply(rules, xs)`` gives what ``rules.run`` gives, and leaves its derivatives to the rules: level
by level, from the innermost. At a tape, what was computed without it goes through ``Pulled``, an
identity that knows how gradients come to ``xs``; tangents are pushed by the rule; over a batch the
rules themselves are mapped; a function that is being staged has an instruction, which applies the
rules anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..context import thread
from ..core.bodies import Body, BodyCall
from ..core.gate import Primitive, Tracer
from ..core.grad_mode import no_grad
from ..core.tensor import Tensor, wrap
from ..errors import AutogradError
from ..ops.functions.creation import create
from ..ops.primitives.batching import fronted
from .instructions import staged
from .jvp import Forward
from .reverse import vjp
from .staging import Stage
from .vmap import Batch, vmap

Tensors = list[Any]
_TRANSPOSING = "func.custom.transposing"  # the rank's slot: linear functions run for their tape


class Rules:
    """A function of tensors that gives a list of them, and its derivatives.

    ``forward(*xs)``: (results, what ``pull`` needs besides); None: ``run`` and nothing.
    ``pull(res, gs, xs)``: the cotangents of ``xs`` (None: zero). ``push(xs, ts)``: (results,
    tangents), both lists. Without ``pull``, that is ``push`` transposed; without ``push``, there is
    no forward mode: ``no_push`` is raised.
    """

    def __init__(
        self, name: str, run: Callable[..., Tensors], *, forward: Callable | None = None,
        pull: Callable | None = None, push: Callable | None = None,
        no_push: Exception | None = None, params: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.name, self.run, self.forward, self.pull, self.push = name, run, forward, pull, push
        self.no_push, self.params = no_push, params or {}

    def began(self, xs: Sequence[Any]) -> tuple[Tensors, Tensors]:
        """Results, and what ``pull`` needs, of values that the tape at hand does not follow."""
        if self.forward is not None:
            return self.forward(*xs)
        return apply(self, xs), []

    def back(self, res: Sequence[Any], gs: Sequence[Any], xs: Sequence[Any]) -> Tensors:
        """The cotangents of ``xs``."""
        if self.pull is not None:
            if self.forward is not None and thread.grad_enabled and any(map(is_followed, xs)):
                res = self.forward(*xs)[1]  # (for derivatives of higher order, as it depends on xs)
            return self.pull(res, gs, xs)
        assert self.push is not None
        push, moving = self.push, [i for i, x in enumerate(xs) if _moves(x)]

        def along(*tangents: Tensor) -> Tensors:
            full: Tensors = [None] * len(xs)
            for i, t in zip(moving, tangents, strict=True):
                full[i] = t
            return push(xs, full)[1]

        zeros = [create.zeros(*xs[i].shape, dtype=xs[i].dtype) for i in moving]
        found: Tensors = [None] * len(xs)
        with _transposing():
            pull = vjp(along, *zeros)[1]
        for i, g in zip(moving, pull(list(gs)), strict=True):
            found[i] = g
        return found

    def mapped(self, flags: Sequence[bool], size: int, level: Batch) -> Rules:
        """The rules over a batch, which those of ``xs`` have that ``flags`` say (as their first
        dimension), and all results."""
        dims = tuple(0 if f else None for f in flags)

        def over(fn: Callable, in_dims: tuple, out_dims: Any = 0) -> Callable:
            return vmap(
                fn, in_dims, out_dims, "different", axis_size=size, axis_name=level.axis_name
            )

        def run(*xs: Any) -> Tensors:
            return over(lambda *v: self.run(*v), dims)(*xs)

        def forward(*xs: Any) -> tuple[Tensors, Tensors]:
            assert self.forward is not None
            return over(self.forward, dims)(*xs)

        def pull(res: Sequence, gs: Sequence, xs: Sequence) -> Tensors:
            def one(res: list, gs: list, *xs: Any) -> Tensors:
                found = self.back(res, gs, xs)
                return [_zeros(x) if f is None else f for f, x in zip(found, xs, strict=True)]

            rows = over(one, (0, 0, *dims))(list(res), list(gs), *xs)
            return [r if d == 0 else r.sum(0) for r, d in zip(rows, dims, strict=True)]

        def push(xs: Sequence, ts: Sequence) -> tuple[Tensors, Tensors]:
            assert self.push is not None
            given = [t for t in ts if t is not None]
            there = [t is not None for t in ts]
            of = self.push

            def one(ts: list, *xs: Any) -> tuple[Tensors, Tensors]:
                rest = iter(ts)
                return of(xs, [next(rest) if t else None for t in there])

            return over(one, ([0] * len(given), *dims))(
                [fronted(t, 0 if f else None, size) for t, f in zip(given, _of(flags, there))], *xs
            )

        return Rules(
            self.name, run, forward=None if self.forward is None else forward, pull=pull,
            push=None if self.push is None else push, no_push=self.no_push, params=self.params,
        )  # fmt: skip


@contextmanager
def _transposing() -> Iterator[None]:
    slots = thread.rank.slots
    before = slots.get(_TRANSPOSING, False)
    slots[_TRANSPOSING] = True
    try:
        yield
    finally:
        slots[_TRANSPOSING] = before


def _of(flags: Sequence[bool], there: Sequence[bool]) -> list[bool]:
    return [f for f, t in zip(flags, there, strict=True) if t]


def _moves(x: Any) -> bool:
    return isinstance(x, Tensor) and x.meta()[1].kind in "fcV"


def _zeros(x: Tensor) -> Any:
    return create.zeros(*x.shape, dtype=x.dtype)


def is_followed(x: Any) -> bool:
    """Whether a tape follows it, at its own level or at one below."""
    while isinstance(x, Tensor):
        if x.graph_node() is not None:
            return True
        if not isinstance(x, Tracer):
            return False
        x = x.inner
    return False


def is_moved(x: Any) -> bool:
    """Whether it has a tangent, at some level."""
    while isinstance(x, Tracer):
        if isinstance(x.interp, Forward) and x.tangent is not None:  # type: ignore[attr-defined]
            return True
        x = x.inner
    return False


def apply(rules: Rules, xs: Sequence[Any]) -> Tensors:
    """``rules.run(*xs)``, with its own derivatives."""
    tensors = [x for x in xs if isinstance(x, Tensor)]
    tracers = [x for x in tensors if isinstance(x, Tracer)]
    top = max((x.interp for x in tracers), key=lambda i: i.level, default=None)
    if thread.grad_enabled and any(
        x.graph_node() is not None and getattr(x, "interp", None) is top for x in tensors
    ):
        return _at_tape(rules, xs, top)
    if top is None:
        top = thread.stack[-1] if thread.stack else None
        if not isinstance(top, Stage):
            return rules.run(*xs)
    if isinstance(top, Stage):
        return _staged(rules, xs, top)
    if not any(is_followed(x) or is_moved(x) or _is_staged(x) for x in tensors):
        return rules.run(*xs)
    if isinstance(top, Forward):
        return _pushed(rules, xs, top)
    if isinstance(top, Batch):
        return _batched(rules, xs, top)
    return rules.run(*xs)


def _is_staged(x: Any) -> bool:
    while isinstance(x, Tracer):
        if isinstance(x.interp, Stage):
            return True
        x = x.inner
    return False


# --- at one level ---------------------------------------------------------------------------------
def _at_tape(rules: Rules, xs: Sequence[Any], top: Any) -> Tensors:
    cut = [_cut(x) if getattr(x, "interp", None) is top else x for x in xs]
    outs, res = rules.began(cut)
    places = [i for i, x in enumerate(xs) if isinstance(x, Tensor)]
    pulled = Pulled(rules, len(outs), len(res), list(xs), places)
    return list(pulled(*outs, *res, *[xs[i] for i in places]))


def _cut(x: Any) -> Any:
    """``x`` without its place in the graph of its own level."""
    if not isinstance(x, Tensor) or x.graph_node() is None:
        return x
    return x.alias() if isinstance(x, Tracer) else x.detach()


def _pushed(rules: Rules, xs: Sequence[Any], level: Any) -> Tensors:
    inner = [x.inner if level.owns(x) else x for x in xs]
    tangents = [x.tangent if level.owns(x) else None for x in xs]
    if all(t is None for t in tangents):
        return [level.wrap(o, None) for o in apply(rules, inner)]
    if rules.push is None and not level.deferred:
        return _linear(rules, inner, tangents, level)
    if not level.deferred:
        assert rules.push is not None
        outs, moved = rules.push(inner, tangents)
        return [level.wrap(o, t) for o, t in zip(outs, moved, strict=True)]
    outs, push = apply(rules, inner), rules.push
    there = [t is not None for t in tangents]

    def rule(given: tuple) -> tuple:
        if push is None:  # (it is said where a tangent is needed)
            raise _refused(rules, inner, given)
        return tuple(push(inner, [t if f else None for t, f in zip(given, there, strict=True)])[1])

    parts = level.later(rule, tuple(tangents), tuple(outs))
    return [level.wrap(o, p) for o, p in zip(outs, parts, strict=True)]


def _refused(rules: Rules, xs: Sequence[Any], ts: Sequence[Any]) -> Exception:
    """The error where tangents are needed of a function that has no rule for them."""
    if any(map(is_followed, (*xs, *ts))):
        return NotImplementedError("Differentiation rule for 'custom_lin' not implemented")
    return rules.no_push or AutogradError(f"{rules.name}: has no rule for forward mode")


def _linear(rules: Rules, xs: Sequence[Any], ts: Sequence[Any], level: Any) -> Tensors:
    """Values whose tangents can be transposed, and not be computed."""
    outs, res = rules.began(xs)
    places = [i for i, t in enumerate(ts) if t is not None]
    assert rules.pull is not None
    pull = rules.pull

    def of_tangents(res: Sequence, gs: Sequence, _: Sequence) -> Tensors:
        found = pull(res, gs, xs)
        return [found[i] for i in places]

    moved = [ts[i] for i in places]
    own = Rules("custom_lin", rules.run, pull=of_tangents, no_push=_refused(rules, xs, ts))
    staged_ = any(isinstance(i, Stage) for i in thread.stack)
    if not thread.rank.slots.get(_TRANSPOSING) and (
        not staged_ or any(map(is_followed, (*xs, *ts)))
    ):
        raise own.no_push  # type: ignore[misc]
    lin = Linear(own, len(outs), len(res), moved, list(range(len(moved))))
    tangents = lin(*outs, *res, *moved)
    return [level.wrap(o, t if _moves(o) else None) for o, t in zip(outs, tangents, strict=True)]


def _batched(rules: Rules, xs: Sequence[Any], level: Any) -> Tensors:
    flags = [level.owns(x) and x.bdim is not None for x in xs]
    inner = [
        (fronted(x.inner, x.bdim, level.size) if f else x.inner) if level.owns(x) else x
        for x, f in zip(xs, flags, strict=True)
    ]
    if not any(flags):
        return [level.wrap(o, None) for o in apply(rules, inner)]
    with level.below():
        outs = apply(rules.mapped(flags, level.size, level), inner)
    return [level.wrap(o, 0) for o in outs]


def _staged(rules: Rules, xs: Sequence[Any], level: Any) -> Tensors:
    places = [i for i, x in enumerate(xs) if isinstance(x, Tensor)]
    tensors = [xs[i] for i in places]

    def run(*values: Tensor) -> Tensors:
        return rules.run(*_placed(xs, places, values))

    found = staged(run, tensors)
    call = CustomCall(rules, list(xs), places, found.body, len(found.consts))
    return list(level.process(call, (*found.consts, *tensors), {}))


def _placed(xs: Sequence[Any], places: Sequence[int], values: Sequence[Any]) -> Tensors:
    full = list(xs)
    for i, v in zip(places, values, strict=True):
        full[i] = v
    return full


class CustomCall(BodyCall):
    """A function with rules as one instruction of a program. Arguments: the constants of its body,
    and what it is a function of."""

    def __init__(
        self, rules: Rules, xs: Tensors, places: list[int], body: Body, consts: int
    ) -> None:
        super().__init__(rules.name, body)
        self.custom, self.consts, self.places = rules, consts, places
        self.static = [None if isinstance(x, Tensor) else x for x in xs]

    def __call__(self, *args: Any, **params: Any) -> Any:
        if not any(isinstance(a, Tensor) for a in args):
            return self.compute(args, params)
        consts, values = args[: self.consts], args[self.consts :]

        def run(*xs: Any) -> Tensors:
            return self.body(*consts, *[xs[i] for i in self.places])

        old = self.custom
        rules = Rules(old.name, run, forward=old.forward, pull=old.pull, push=old.push,
                      no_push=old.no_push, params=old.params)  # fmt: skip
        return tuple(apply(rules, _placed(self.static, self.places, values)))


class Pulled(Primitive):
    """The first ``count`` arguments as they are; gradients go to the last ones, by the rules.
    Between them is what the rules need."""

    def __init__(self, rules: Rules, count: int, kept: int, xs: Tensors, places: list[int]) -> None:
        super().__init__(rules.name, self._forward, ())
        self.custom, self.count, self.besides, self.places = rules, count, kept, places
        self.static = [None if isinstance(x, Tensor) else x for x in xs]
        every = count + kept + len(places)
        self.args = tuple(f"x{i}" for i in range(every))
        self.multi = self.differentiable = self.kinds = True
        everything = tuple(range(every))
        self.saves = (everything,) * every
        self.save_bits = [(1 << every) - 1] * every
        self.vjp_all, self.batch = self._pull, self._batch
        self.jvp = lambda primals, tangents, params: tuple(tangents[:count])
        self.dual = lambda primals, tangents: (tuple(primals[:count]), tuple(tangents[:count]))
        self.shape = lambda *given, **params: [(a.shape, a.dtype) for a in given[:count]]

    def _forward(self, *arrays: Any) -> tuple:
        return arrays[: self.count]

    def compute(self, arrays: list | tuple, params: dict) -> Any:
        return tuple(arrays[: self.count])

    def _batch(self, args: tuple, dims: tuple, params: dict, size: int) -> tuple:
        return tuple(args[: self.count]), tuple(dims[: self.count])

    def _pull(self, g: tuple, out: Any, values: Any, node: Any, needs: tuple) -> tuple:
        tensors = any(isinstance(v, Tensor) for v in (*values, *g))
        values = [v if isinstance(v, Tensor) or v is None else wrap(np.asarray(v)) for v in values]
        a, b = self.count, self.count + self.besides
        gs = [
            _zeros(o) if x is None else x if isinstance(x, Tensor) else wrap(np.asarray(x))
            for x, o in zip(g, values[:a], strict=True)
        ]
        xs = _placed(self.static, self.places, values[b:])
        if tensors:
            found = self.custom.back(values[a:b], gs, xs)
        else:
            with no_grad():
                found = self.custom.back(values[a:b], gs, xs)
        rows = [found[i] if need else None for i, need in zip(self.places, needs[b:], strict=True)]
        ends = [None] * b + rows
        return tuple(ends if tensors else [None if r is None else r.array for r in ends])


class Linear(Pulled):
    """The tangents of a function that says how to pull back alone: to be transposed
    (``Rules.back``), and an error where they are computed."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.name, self.checks = "custom_lin", False
        self.dual = None
        self.jvp = self.batch = self._refuse

    def _refuse(self, *_: Any) -> Any:
        raise self.custom.no_push or AutogradError("custom_lin")

    def _forward(self, *arrays: Any) -> tuple:
        return self.compute(arrays, {})

    def compute(self, arrays: list | tuple, params: dict) -> Any:
        if not thread.rank.slots.get(_TRANSPOSING):
            self._refuse()
        return tuple(np.zeros(a.shape, a.dtype) for a in arrays[: self.count])


__all__ = ["CustomCall", "Rules", "apply", "is_followed", "is_moved"]
