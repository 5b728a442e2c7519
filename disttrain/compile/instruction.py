"""The words of a graph: names of values, and instructions on them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ..core.gate import Primitive
from ..ops.declare import primitive


@dataclass(frozen=True)
class Var:
    """A value's name; ``kind`` is 'v' (input or result) or 'c' (from outside)."""

    kind: str
    number: int

    def __str__(self) -> str:
        return f"%{self.number}" if self.kind == "v" else f"c{self.number}"


@dataclass(frozen=True)
class Instruction:
    """``outputs = prim(*args, **params)``; ``args`` are Vars and plain values."""

    prim: Primitive
    args: tuple
    params: dict[str, Any]
    outputs: tuple[Var, ...]

    @property
    def effect(self) -> bool:
        """Whether it must run even when nobody uses its outputs."""
        prim = self.prim
        return bool(prim.mutates) or prim.random or prim.checks or prim.outward

    def renamed(self, names: dict[Var, Var]) -> Instruction:
        """The same with other names for some arguments."""
        args = tuple(names.get(a, a) if isinstance(a, Var) else a for a in self.args)
        return replace(self, args=args)


# A tensor that the program makes from Python numbers (dt.zeros ...): every run starts with a copy.
constant = primitive(
    "constant",
    lambda *, value: value.copy("K"),
    "",
    shape=lambda *, value: (value.shape, value.dtype),
)
# One that it makes of sizes.
made = Primitive("made", lambda *, make, given: make(*given), ())


def maker(value: Any, recipe: tuple | None, var: Var) -> Instruction:
    """What makes ``var`` in every run: a copy of ``value``, or what a ``recipe`` makes."""
    if recipe is None:
        return Instruction(constant, (), {"value": value}, (var,))
    return Instruction(made, (), {"make": recipe[0], "given": recipe[1]}, (var,))


def describe(meta: tuple) -> str:
    """A shape and an element type as text."""
    shape, kind = meta
    return f"{kind}{list(shape)}"
