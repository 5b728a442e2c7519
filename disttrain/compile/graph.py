"""Graph: a program as data. Inputs, tensors from outside, instructions, outputs.

Values have names: ``%0`` inputs and results, ``c0`` tensors that the program found outside
(parameters, optimizer state, constants), kept by reference, because a replay reads their present
values and writes to them. Instructions run in order; one that writes to its arguments is marked
``!``. Plain numbers are part of the instruction and stay what they were at capture.

A tensor from outside that is the ``.grad`` of another (``owners``) is looked up anew by each
replay. ``grads`` is what the program left in ``.grad``; a replay leaves its own values there.
What it drops before all else (``dropped``) a replay drops first, so that the memory is free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..backends.null import NullArray
from ..core.tensor import Tensor
from ..errors import CaptureError
from .instruction import Instruction, Var, describe
from .questions import Otherwise
from .replays.replay import Afresh, Program


class Read:
    """A tensor whose numbers the program read, and what they were."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor, self.then = tensor, tensor.array.tobytes()

    def holds(self) -> bool:
        """Whether the numbers are still the same."""
        return self.tensor.array.tobytes() == self.then


class Unwritten:
    """A tensor that the program goes by for as long as nothing writes to it."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor, self.version = tensor, tensor._version

    def holds(self) -> bool:
        """Whether nothing has."""
        return self.tensor._version == self.version


@dataclass(frozen=True, repr=False)
class Graph:
    """A captured program."""

    inputs: tuple[Var, ...]
    captured: tuple[Tensor, ...]
    names: tuple[str, ...]
    instructions: tuple[Instruction, ...]
    outputs: tuple[Any, ...]  # Vars and plain values
    metas: dict[Var, tuple]
    grads: tuple[tuple[Var, Var | None], ...] = ()
    dropped: tuple[Var, ...] = ()  # whose gradients of before are gone when it begins
    owners: dict[Var, Var] = field(default_factory=dict)
    reads: tuple[Read | Unwritten, ...] = ()
    same: dict[int, str] = field(default_factory=dict)  # per output: what it is to its value
    touched: list[Var] = field(default_factory=list)  # given tensors whose versions rise
    constants: dict[Var, Any] = field(default_factory=dict)  # made by the program: their numbers
    there: set[Var] = field(default_factory=set)  # values that lie on a device

    def __str__(self) -> str:
        head = ", ".join(f"{v}: {describe(self.metas[v])}" for v in self.inputs)
        lines = [f"graph({head}):"]
        for var, name in zip(self.outside(), self.names, strict=True):
            lines.append(f"  {var}: {describe(self.metas[var])}  # {name}")
        lines += [f"  {self._line(ins)}" for ins in self.instructions]
        lines += [f"  {leaf}.grad = {var}" for leaf, var in self.grads]
        lines.append(f"  return {', '.join(str(o) for o in self.outputs)}")
        return "\n".join(lines)

    __repr__ = __str__

    def _line(self, ins: Instruction) -> str:
        parts = [str(a) if isinstance(a, Var) else _text(a) for a in ins.args]
        parts += [f"{k}={_text(v)}" for k, v in ins.params.items()]
        call = f"{ins.prim.name}{'!' if ins.prim.mutates else ''}({', '.join(parts)})"
        if not ins.outputs:
            return call
        left = ", ".join(f"{o}: {describe(self.metas[o])}" for o in ins.outputs)
        return f"{left} = {call}"

    # --- parts ------------------------------------------------------------------------------
    def outside(self) -> tuple[Var, ...]:
        """The names of the tensors from outside."""
        return tuple(Var("c", i) for i in range(len(self.captured)))

    def results(self) -> set[Var]:
        """The values that are wanted when all instructions have run."""
        kept = {o for o in self.outputs if isinstance(o, Var)}
        return kept | {var for _, var in self.grads if var is not None}

    # --- checks -----------------------------------------------------------------------------
    def verify(self) -> Graph:
        """Raise ``CaptureError`` unless every value is defined once, before its use, and has the
        shape and type that its primitive's shape rule says."""
        known = {*self.inputs, *self.outside()}
        for i, ins in enumerate(self.instructions):
            where = f"graph: instruction {i} ({ins.prim.name})"
            for a in ins.args:
                if isinstance(a, Var) and a not in known:
                    raise CaptureError(f"{where} uses {a} undefined")
            for o in ins.outputs:
                if o in known:
                    raise CaptureError(f"{where} defines {o} again")
                known.add(o)
            self._verify_shapes(where, ins)
        for o in self.results():
            if o not in known:
                raise CaptureError(f"graph: the output {o} is not defined")
        return self

    def _verify_shapes(self, where: str, ins: Instruction) -> None:
        if ins.prim.shape is None or not ins.outputs:
            return
        given = [NullArray(*self.metas[a]) if isinstance(a, Var) else a for a in ins.args]
        said = ins.prim.shape(*given, **ins.params)
        told = list(zip(ins.outputs, said if ins.prim.multi else [said], strict=True))
        # (On devices, what is kept for the gradient may be laid out otherwise.)
        for o, (shape, kind) in told if ins.prim.on_device is None else told[:1]:
            have = self.metas[o]
            if (tuple(shape), np.dtype(kind)) != (tuple(have[0]), have[1]):
                raise CaptureError(
                    f"{where} gives {o} as {describe(have)}; its shape rule says "
                    f"{describe((shape, kind))}"
                )

    def current(self) -> bool:
        """Whether the numbers that the program read are still what they were."""
        return all(read.holds() for read in self.reads)

    # --- use --------------------------------------------------------------------------------
    def with_instructions(self, instructions: Sequence[Instruction]) -> Graph:
        """The same graph with other instructions (what a pass returns)."""
        return replace(self, instructions=tuple(instructions)).verify()

    @cached_property
    def program(self) -> Program:
        """The graph laid out for running."""
        return Program(self)

    @property
    def graph(self) -> Graph:
        """Itself, as backends written for PyTorch ask for it."""
        return self

    def __call__(self, *inputs: Tensor) -> tuple:
        return self.run(*inputs)

    def forward(self, *inputs: Tensor) -> tuple:
        """``run``, as backends written for PyTorch call it."""
        return self.run(*inputs)

    def run(self, *inputs: Tensor) -> tuple:
        """Replay on other inputs of the same shapes: the outputs, and the effects.

        Writes reach the tensors from outside, random numbers are drawn anew, ``.grad`` is set as
        the captured run left it. Nothing is recorded for backward.
        """
        if len(inputs) != len(self.inputs):
            raise CaptureError(f"graph: {len(inputs)} inputs given; {len(self.inputs)} are needed")
        if not self.current():
            raise CaptureError(
                "graph: the program read a number of a tensor that has been written to since; "
                "capture it again"
            )
        try:
            return self.program.run(inputs)
        except Afresh as again:
            assert again.__cause__ is not None
            raise again.__cause__ from None
        except Otherwise:
            raise CaptureError(
                "graph: a number that the program reads on its way is not what it was, so that "
                "the program would take another path; capture it again"
            ) from None


def _text(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"<{describe((value.shape, value.dtype))}>"
    return repr(value)
