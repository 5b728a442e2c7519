"""What vmap and jvp share: a level of interpretation and how values enter and leave it.

A level is pushed on the thread's interpreter stack while its function runs. Its values are tracers
whose ``inner`` values live one level lower; the gate sends every operation to the highest level
among its arguments. Knows no transform.
"""

from __future__ import annotations

from typing import Any

from .. import context
from ..core.gate import Tracer
from ..core.tensor import Tensor
from ..errors import CaptureError

_new = object.__new__


class Level:
    """One active vmap or jvp. Higher levels are nearer to the code that runs."""

    dynamic = False
    name = "transform"

    def __init__(self) -> None:
        self.level = len(context.thread.stack)

    def __str__(self) -> str:
        return f"{self.name} (level {self.level})"

    def owns(self, value: Any) -> bool:
        return isinstance(value, Tracer) and value.interp is self

    def lift(self, value: Tensor) -> Tracer:
        """``value`` of a lower level as one of this level's values."""
        raise NotImplementedError

    def lift_like(self, tracer: Tracer) -> Tracer:
        """The same value, without a place in this level's graph."""
        out = _new(type(tracer))
        for name, value in tracer.__dict__.items():
            if not name.startswith("_"):
                out.__dict__[name] = value
        return out

    def process(self, prim: Any, args: tuple, params: dict) -> Any:
        raise NotImplementedError


def innermost() -> Level | None:
    """The level that the calling code runs in, or None."""
    for interp in reversed(context.thread.stack):
        if not interp.dynamic:
            return interp
    return None


def refuse_mutation(level: Level, prim: Any) -> None:
    if prim.mutates:
        raise CaptureError(
            f"{prim.name}: writes to a tensor inside {level}, which may not change values of the "
            "world outside; use the out-of-place form"
        )
