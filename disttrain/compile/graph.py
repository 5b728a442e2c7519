"""Graph: a program as data. Inputs, tensors from outside, instructions, outputs.

Values have names: ``%0`` inputs and results, ``c0`` tensors that the program found outside
(parameters, optimizer state, constants), kept by reference, because a replay reads their present
values and writes to them. Instructions run in order; one that writes to its arguments is marked
``!``. Plain numbers are part of the instruction and stay what they were at capture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..core.gate import Primitive, finish, touched
from ..core.tensor import Tensor, wrap
from ..errors import CaptureError


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
        return bool(self.prim.mutates) or self.prim.random


@dataclass(frozen=True)
class Graph:
    """A captured program."""

    inputs: tuple[Var, ...]
    captured: tuple[Tensor, ...]
    names: tuple[str, ...]
    instructions: tuple[Instruction, ...]
    outputs: tuple[Any, ...]  # Vars and plain values
    metas: dict[Var, tuple]

    def __str__(self) -> str:
        head = ", ".join(f"{v}: {_meta(self.metas[v])}" for v in self.inputs)
        lines = [f"graph({head}):"]
        for i, name in enumerate(self.names):
            lines.append(f"  c{i}: {_meta(self.metas[Var('c', i)])}  # {name}")
        lines += [f"  {self._line(ins)}" for ins in self.instructions]
        lines.append(f"  return {', '.join(str(o) for o in self.outputs)}")
        return "\n".join(lines)

    def _line(self, ins: Instruction) -> str:
        parts = [str(a) if isinstance(a, Var) else repr(a) for a in ins.args]
        parts += [f"{k}={v!r}" for k, v in ins.params.items()]
        call = f"{ins.prim.name}{'!' if ins.prim.mutates else ''}({', '.join(parts)})"
        if ins.prim.mutates:
            return call
        left = ", ".join(f"{o}: {_meta(self.metas[o])}" for o in ins.outputs)
        return f"{left} = {call}"

    def verify(self) -> Graph:
        """Raise ``CaptureError`` unless every value is defined once, before its use."""
        known = {*self.inputs, *(Var("c", i) for i in range(len(self.captured)))}
        for i, ins in enumerate(self.instructions):
            for a in ins.args:
                if isinstance(a, Var) and a not in known:
                    raise CaptureError(
                        f"graph: instruction {i} ({ins.prim.name}) uses {a} undefined"
                    )
            for o in ins.outputs:
                if o in known:
                    raise CaptureError(
                        f"graph: instruction {i} ({ins.prim.name}) defines {o} again"
                    )
                known.add(o)
        for o in self.outputs:
            if isinstance(o, Var) and o not in known:
                raise CaptureError(f"graph: the output {o} is not defined")
        return self

    def with_instructions(self, instructions: Sequence[Instruction]) -> Graph:
        """The same graph with other instructions (what a pass returns)."""
        return replace(self, instructions=tuple(instructions)).verify()

    def run(self, *inputs: Any) -> tuple:
        """Replay on other inputs of the same shapes: the outputs, and the effects."""
        if len(inputs) != len(self.inputs):
            raise CaptureError(f"graph: {len(inputs)} inputs given; {len(self.inputs)} are needed")
        arrays: dict[Var, Any] = {Var("c", i): t.array for i, t in enumerate(self.captured)}
        for v, t in zip(self.inputs, inputs, strict=True):
            if t.meta() != self.metas[v]:
                raise CaptureError(
                    f"graph: input {v} is {_meta(t.meta())}; captured with {_meta(self.metas[v])}"
                )
            arrays[v] = t.array
        for ins in self.instructions:
            self._step(ins, arrays)
        return tuple(wrap(arrays[o]) if isinstance(o, Var) else o for o in self.outputs)

    def _step(self, ins: Instruction, arrays: dict[Var, Any]) -> None:
        given = [arrays[a] if isinstance(a, Var) else a for a in ins.args]
        result = ins.prim.compute(given, ins.params)
        if ins.prim.mutates:
            for i in ins.prim.mutates:
                a = ins.args[i]
                if isinstance(a, Var) and a.kind == "c":
                    touched(self.captured[a.number])
        elif ins.prim.multi:
            for o, r in zip(ins.outputs, result, strict=True):
                arrays[o] = finish(r)
        else:
            arrays[ins.outputs[0]] = finish(result)


def _meta(meta: tuple) -> str:
    shape, kind = meta
    return f"{kind}{list(shape)}"
