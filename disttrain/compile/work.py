"""What stands in a graph for work that reaches beyond it: primitives that call an effect."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..core.effects import Effect
from ..core.gate import Primitive
from ..core.tensor import wrap


class Work(Primitive):
    """What stands in a graph for an effect, whatever kinds of arrays it is given. ``keeps``: what
    it is given may be in use when it has returned."""

    keeps = True

    def compute(self, arrays: list | tuple, params: dict) -> Any:
        return self.forward(*arrays, **params)


def on_arrays(*arrays: object, effect: Callable[..., Any]) -> Any:
    """Do it on arrays."""
    return effect(*arrays)


def on_tensors(*arrays: Any, effect: Callable[..., Any]) -> Any:
    """Do it on tensors over the arrays."""
    return effect(*[wrap(a) for a in arrays])


def giving(*arrays: Any, effect: Effect) -> tuple:
    """Do it on tensors over the arrays; what it gives."""
    effect(*[wrap(a) for a in arrays])
    return tuple([t.array for t in effect.gives()])


@functools.cache
def work_of(
    name: str, forward: Callable[..., Any], writes: tuple[int, ...], alone: bool = False
) -> Work:
    """What stands in a graph for an effect. ``alone``: that reaches nobody else."""
    prim = Work(name, forward, ())
    prim.outward, prim.checks = not alone, alone
    prim.mutates, prim.multi = writes, forward is giving
    return prim


__all__ = ["Work", "giving", "on_arrays", "on_tensors", "work_of"]
