"""Fusion: elementwise operations that feed each other become one generated kernel.

A region grows while instructions of its shape come that use what it uses or makes, and ends where
another instruction needs one of its values, or something is written to. It then runs as late as
that, which nobody can tell: what it reads is not written to in between.
"""

from __future__ import annotations

from ..graph import Graph
from ..instruction import Instruction, Var
from .expressions import expression_of
from .region import Region
from .values import inputs_of

MOST = 32  # members of a region
_WIDEST = 12  # values that go in and out of one


class _Open:
    """A region that still grows."""

    def __init__(self, shape: tuple) -> None:
        self.shape = shape
        self.members: list[Instruction] = []
        self.made: set[Var] = set()
        self.read: set[Var] = set()

    def wants(self, ins: Instruction) -> bool:
        """Whether the instruction uses what the region uses or makes, and there is room."""
        given = set(inputs_of(ins))
        wide = len((self.read | given) - self.made)
        together = not self.members or given & (self.made | self.read)
        return bool(together) and len(self.members) < MOST and wide <= _WIDEST

    def add(self, ins: Instruction) -> None:
        self.members.append(ins)
        self.made.update(ins.outputs)
        self.read.update(inputs_of(ins))


class _Fusion:
    """One walk over the instructions of a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.metas = graph, graph.metas
        self.open: dict[tuple, _Open] = {}  # by shape
        self.done: list[Instruction] = []
        self.uses: dict[Var, int] = {}
        for ins in graph.instructions:
            for v in inputs_of(ins):
                self.uses[v] = self.uses.get(v, 0) + 1
        for v in graph.results():
            self.uses[v] = self.uses.get(v, 0) + 1

    def run(self) -> Graph:
        for ins in self.graph.instructions:
            if self._fits(ins):
                self._take(ins)
            else:
                self._end_where(ins)
                self.done.append(ins)
        self._end_all()
        return self.graph.with_instructions(self.done)

    def _fits(self, ins: Instruction) -> bool:
        """Whether it is an operation on elements that a kernel can do."""
        if ins.effect or ins.prim.view or len(ins.outputs) != 1:
            return False
        shape = tuple(self.metas[ins.outputs[0]][0])
        given = [tuple(self.metas[v][0]) for v in inputs_of(ins)]
        if not shape or 0 in shape or shape not in given:
            return False
        return expression_of(ins, self.metas) is not None

    def _take(self, ins: Instruction) -> None:
        shape = tuple(self.metas[ins.outputs[0]][0])
        for other in [r for r in self.open.values() if r.shape != shape]:
            if other.made & set(inputs_of(ins)):
                self._end(other)
        region = self.open.get(shape)
        if region is not None and not region.wants(ins):
            self._end(region)
        self.open.setdefault(shape, _Open(shape)).add(ins)

    def _end_where(self, ins: Instruction) -> None:
        """End the regions that ``ins`` needs values of; all, where it writes."""
        if ins.prim.mutates:
            self._end_all()
        given = set(inputs_of(ins))
        for region in list(self.open.values()):
            if region.made & given:
                self._end(region)

    def _end_all(self) -> None:
        for region in list(self.open.values()):
            self._end(region)

    def _end(self, region: _Open) -> None:
        """Put a region where the walk is, after those that it needs."""
        if self.open.get(region.shape) is not region:
            return
        del self.open[region.shape]
        for other in list(self.open.values()):
            if other.made & region.read:
                self._end(other)
        self.done += self._fused(region)

    def _fused(self, region: _Open) -> list[Instruction]:
        inside: dict[Var, int] = {}
        for ins in region.members:
            for v in inputs_of(ins):
                inside[v] = inside.get(v, 0) + 1
        outputs = [
            v for ins in region.members for v in ins.outputs
            if self.uses.get(v, 0) > inside.get(v, 0)
        ]  # fmt: skip
        inputs = [v for v in inside if v not in region.made]
        if len(region.members) < 2 or len(outputs) > _WIDEST or not outputs:
            return region.members
        whole = Region(region.members, inputs, outputs, self.metas)
        return [Instruction(whole.primitive(), tuple(inputs), {}, tuple(outputs))]


def fuse(graph: Graph) -> Graph:
    """Put elementwise operations together, so that each element is read and written once."""
    return _Fusion(graph).run()
