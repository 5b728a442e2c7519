"""Fusion and overwriting of what runs on devices.

The walks are those of the host's passes; what a kernel can do, and how it runs, is told by
``device_region``. Values that lie on a device are known by the graph (``Graph.there``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..graph import Graph
from ..instruction import Instruction, Var
from .device_region import DeviceRegion, is_elementwise_there
from .fusion import Fusion
from .liveness import Liveness
from .overwriting import free_operands, is_worth
from .region import Fused
from .values import inputs_of


class _DeviceFusion(Fusion):
    """One walk over instructions, of which those on a device are put together."""

    def __init__(
        self, instructions: Sequence[Instruction], metas: dict, results: Iterable[Var],
        there: set[Var],
    ) -> None:  # fmt: skip
        super().__init__(instructions, metas, results, False)
        self.there = there

    def fits(self, ins: Instruction) -> bool:
        return is_elementwise_there(ins, self.metas, self.there)

    def whole(self, members: list, inputs: tuple, outputs: tuple) -> Fused:
        return DeviceRegion(members, inputs, outputs, self.metas).primitive()


def fused_there(
    instructions: Sequence[Instruction], metas: dict, results: Iterable[Var], there: set[Var]
) -> list[Instruction]:
    """``instructions`` with regions in place of those on a device that feed each other element by
    element."""
    return _DeviceFusion(instructions, metas, results, there).run()


def fuse_there(graph: Graph) -> Graph:
    """Put elementwise operations on a device together: one launch, and each element is read and
    written once."""
    done = fused_there(graph.instructions, graph.metas, graph.results(), graph.there)
    return graph.with_instructions(done)


def overwrite_there(graph: Graph) -> Graph:
    """``overwrite``, of what runs on a device."""
    alive = Liveness(graph)
    done = [_marked(ins, i, graph, alive) for i, ins in enumerate(graph.instructions)]
    return graph.with_instructions(done)


def _marked(ins: Instruction, at: int, graph: Graph, alive: Liveness) -> Instruction:
    fused = isinstance(ins.prim, Fused)
    if not (fused or is_elementwise_there(ins, graph.metas, graph.there)):
        return ins
    inputs = tuple(dict.fromkeys(inputs_of(ins)))
    over = free_operands(inputs, ins, at, graph, alive)
    if not over or not (fused or ins.prim.name == "clone" or is_worth(ins, alive)):
        return ins
    prim = ins.prim if fused else DeviceRegion([ins], inputs, ins.outputs, graph.metas).primitive()
    return Instruction(prim, inputs, {"over": over}, ins.outputs)
