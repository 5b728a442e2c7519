"""What vmap and jvp share: a level of interpretation and how values enter and leave it.

A level is pushed on the thread's interpreter stack while its function runs. Its values are tracers
whose ``inner`` values live one level lower; the gate sends every operation to the highest level
among its arguments. Knows no transform.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .. import context, tree
from ..core.gate import Primitive, Tracer
from ..core.node import AccumulateGrad, Output
from ..core.tensor import Tensor
from ..errors import AutogradError, CaptureError, EscapedValue
from .named import mixed

_new = object.__new__


class Level:
    """One active vmap or jvp. Higher levels are nearer to the code that runs."""

    dynamic = False
    adopts = False  # whether tensors from outside that require grad do so at this level too
    draws = False  # whether it wants to see random numbers drawn from no argument
    joins = False  # whether what its function makes may become a value of it by a write
    over = False
    mixes = False  # whether arguments of one operation are made to vary along the same axes
    mixed = staticmethod(mixed)
    axis_name: Hashable = None  # by which collectives inside name it
    varying = False  # whether its values know along it whether they vary
    name = "transform"

    def __init__(self) -> None:
        self.level = len(context.thread.stack)
        self.joined: list = []  # (its memory, what it was, the value it is): by writes

    def __str__(self) -> str:
        return f"{self.name} (level {self.level})"

    def owns(self, value: object) -> bool:
        return isinstance(value, Tracer) and value.interp is self

    def lift(self, value: Tensor) -> Tracer:
        """``value`` of a lower level as one of this level's values."""
        raise NotImplementedError

    def moves(self, tracer: Tracer) -> bool:
        """Whether the value is more than its inner one: another for each example, say."""
        return True

    def lift_like(self, tracer: Tracer) -> Tracer:
        """The same value, without a place in this level's graph."""
        out = _new(type(tracer))
        for name, value in tracer.__dict__.items():
            if not name.startswith("_"):
                out.__dict__[name] = value
        return out

    def detached(self, tracer: Tracer) -> Tracer:
        """The same value, cut off from this level's derivatives and from those of lower ones."""
        raise NotImplementedError

    def aligned(self, old: Tracer, new: Tracer) -> tuple[Tensor, Tracer]:
        """What ``old`` holds of the level below, in the form in which ``new`` holds it; ``new``."""
        return old.inner, new

    def process(self, prim: Primitive, args: tuple, params: dict) -> Any:
        raise NotImplementedError

    def check_draw(self, name: str, by: tuple, target: Tensor | None = None) -> None:
        """Refuse random numbers that depend on the values ``by``, or are written over ``target``,
        where this level cannot give them."""

    def apply_function(self, cls: type, args: tuple, kwargs: dict) -> Any:
        """A custom ``autograd.Function`` with this level's values among its arguments."""
        raise NotImplementedError

    @contextmanager
    def running(self) -> Iterator[None]:
        """The level is on the stack; its values are dead after that."""
        self.level = len(context.thread.stack)
        with context.interpreter(self), self._named():
            try:
                yield
            finally:
                self.over = True

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Its name is bound to it."""
        before = context.thread.axes
        if self.axis_name is not None:
            context.thread.axes = (*before, (self.axis_name, self))
        self.mixes = any(level.varying for _, level in context.thread.axes)
        try:
            yield
        finally:
            context.thread.axes = before

    @contextmanager
    def below(self) -> Iterator[None]:
        """As if the block ran outside of this level (draws from no argument belong to no value)."""
        before = context.thread.axes
        context.thread.axes = tuple([a for a in before if a[1].level < self.level])
        try:
            with context.outside_of(self):
                yield
        finally:
            context.thread.axes = before


def settle(result: object) -> Any:
    """``result`` with views brought up to date that an in-place write has changed: to be called
    while the level still runs."""
    for leaf in tree.leaves(result):
        if isinstance(leaf, Tracer):
            leaf.graph_node()
    return result


def is_written(tracer: Tracer, given: Tensor) -> bool:
    """Whether an input was changed in place: its value inside is no more the one that was given."""
    tracer.graph_node()
    return tracer.inner is not given


def renew(tracer: Tracer, value: Tracer) -> None:
    """Let ``tracer``, and the views of it, be parts of what ``value`` holds."""
    tracer.become(value, tracer._node)
    cell = tracer.storage_cell()
    cell.gen += 1
    tracer._gen = cell.gen


def innermost() -> Level | None:
    """The level that the calling code runs in, or None."""
    for interp in reversed(context.thread.stack):
        if not interp.dynamic:
            return interp
    return None


def check(level: Level, prim: Primitive) -> None:
    """Refuse what a level cannot do: write to the world outside, or outlive its function."""
    if level.over:
        raise EscapedValue(
            f"{prim.name}: a value from inside {level} is used after the transform returned; "
            "return it from the transformed function instead of keeping it elsewhere"
        )
    if prim.mutates:
        raise CaptureError(
            f"{prim.name}: writes to a tensor inside {level}, which may not change values of the "
            "world outside; use the out-of-place form"
        )


def followed(values: Sequence[Any], own: Sequence[Tensor]) -> bool:
    """Whether the tape of a world outside may want what was computed from ``values``: whether it
    depends on more than the leaves ``own``, or lives inside another transform that records."""
    leaves = {id(x.graph_node()) for x in own}
    seen: set = set()
    stack: list = []
    for value in values:
        if not isinstance(value, Tensor):
            continue
        node = value.graph_node()
        if node is not None:
            stack.append(node.node if node.__class__ is Output else node)
        if isinstance(value, Tracer) and followed(_below(value), ()):
            return True
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if node.__class__ is AccumulateGrad:
            if id(node) not in leaves and not node.private:
                return True
            continue
        for e in node.edges:
            if e is not None:
                stack.append(e.node if e.__class__ is Output else e)
    return False


def _below(tracer: Tracer) -> tuple:
    """What a tracer holds of the level below it."""
    return (tracer.inner, getattr(tracer, "tangent", None))


def leave_private(inputs: Sequence[Tensor]) -> None:
    """Say that the leaves among ``inputs`` are a transform's own: nobody outside asks for them."""
    for x in inputs:
        node = x.graph_node()
        if node.__class__ is AccumulateGrad:
            node.private = True


def debug_unwrap(tensor: Tensor, *, recurse: bool = True) -> Tensor:
    """What a value inside transforms holds (with ``recurse``, below all of them): to look at it in
    a debugger, not to compute with."""
    while isinstance(tensor, Tracer):
        tensor = tensor.inner
        if not recurse:
            break
    return tensor


def functionalize(func: Any, *, remove: str = "mutations") -> Any:
    """``func`` with the same results. In PyTorch it performs no write in place; here captures see
    writes as they see results, and nothing needs to be removed."""
    if remove not in ("mutations", "mutations_and_views"):
        raise AutogradError(
            f"functionalize: received invalid argument for remove={remove}. Valid options are: "
            "'mutations', 'mutations_and_views'"
        )

    @functools.wraps(func)
    def run(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    return run
