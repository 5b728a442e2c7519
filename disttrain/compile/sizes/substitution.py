"""Putting numbers in place of expressions: shapes, instructions, graphs and captured walks as they
are for given sizes. (What holds no sizes is the same object for all.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ..graph import Graph
from ..instruction import Instruction
from ..joint import Joint
from ..passes.region import Fused
from ..sized import is_sized, numbers, substitute
from ..sweep import Backward, Sweep


def all_numbers(graph: Graph, joint: Joint | None) -> Iterator[Any]:
    """The sized numbers of a capture."""
    for shape, _ in graph.metas.values():
        yield from numbers(shape)
    yield from numbers(graph.outputs)
    instructions = list(graph.instructions)
    for sweep in joint.sweeps if joint is not None else ():
        instructions += sweep.instructions
    if joint is not None:
        yield from numbers(joint.shapes)
        instructions += joint.pure.instructions if joint.pure is not None else ()
    for ins in instructions:
        yield from numbers((ins.args, ins.params))
        if isinstance(ins.prim, Fused):
            for member in ins.prim.region.members:
                yield from numbers((member.args, member.params))


class Metas:
    """Shapes and types of values."""

    def __init__(self, metas: dict) -> None:
        self.metas = metas
        self.sized = [(v, *meta) for v, meta in metas.items() if is_sized(meta[0])]

    def made(self, values: dict) -> dict:
        """For other sizes."""
        changed = {v: (substitute(shape, values), kind) for v, shape, kind in self.sized}
        return {**self.metas, **changed}


class _Part:
    """Instructions, of which some hold sizes."""

    def __init__(self, instructions: Any) -> None:
        self.instructions = instructions
        self.sized = [i for i, ins in enumerate(instructions) if _holds_sizes(ins)]

    def plain(self, values: dict, metas: dict) -> list[Instruction]:
        """For other sizes."""
        out = list(self.instructions)
        for i in self.sized:
            out[i] = _instruction(out[i], metas, values)
        return out


class Whole(_Part):
    """A graph."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph.instructions)
        self.graph = graph

    def made(self, values: dict, metas: dict) -> Graph:
        """For other sizes."""
        return replace(
            self.graph,
            metas=metas,
            instructions=tuple(self.plain(values, metas)),
            outputs=tuple(substitute(self.graph.outputs, values)),
        )


class Walked(_Part):
    """A captured walk."""

    def __init__(self, sweep: Sweep) -> None:
        super().__init__(sweep.instructions)
        self.sweep = sweep

    def made(self, values: dict, metas: dict, names: list) -> Sweep:
        """For other sizes."""
        was = self.sweep
        sweep = Sweep(was.results, self.plain(values, metas), was.starts, was.ends)
        sweep.graph = Backward(sweep, names)
        sweep.graph.reads = was.graph.reads
        return sweep


def _holds_sizes(ins: Instruction) -> bool:
    return isinstance(ins.prim, Fused) or is_sized((ins.args, ins.params))


def _instruction(ins: Instruction, metas: dict, values: dict) -> Instruction:
    if isinstance(ins.prim, Fused):
        region = ins.prim.region
        members = [_instruction(m, metas, values) for m in region.members]
        return replace(ins, prim=region.resized(members, metas).primitive())
    args, params = substitute(ins.args, values), substitute(ins.params, values)
    if args is ins.args and params is ins.params:
        return ins
    return Instruction(ins.prim, args, params, ins.outputs)


__all__ = ["Metas", "Walked", "Whole", "all_numbers"]
