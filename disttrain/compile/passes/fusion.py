"""Fusion: elementwise operations that feed each other become one generated kernel.

A region grows while instructions of its shape come that use what it uses or makes, and ends where
another instruction needs one of its values, or something is written to. It then runs as late as
that, which nobody can tell: what it reads is not written to in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..graph import Graph
from ..instruction import Instruction, Var
from .expressions import expressions_of
from .region import Fused, Region
from .values import inputs_of

MOST = 32  # members of a region
_WIDEST = 16  # arrays that go in and out of one


class Open:
    """A region that still grows. ``late``: what is made of its values, and comes right after it."""

    def __init__(self, shape: tuple) -> None:
        self.shape = shape
        self.members: list[Instruction] = []
        self.made: set[Var] = set()
        self.late: set[Var] = set()
        self.read: dict[Var, None] = {}  # of what others made
        self.left: dict[Var, int] = {}  # uses of what it made that are still to come

    def gives(self, values: Iterable[Var]) -> bool:
        """Whether some of the values are known when it has run only."""
        return not (self.made.isdisjoint(values) and self.late.isdisjoint(values))

    def wants(self, ins: Instruction) -> bool:
        """Whether the instruction uses what the region uses or makes, and there is room."""
        given = set(inputs_of(ins))
        wide = len({*self.read, *(given - self.made)}) + len(self.left) + len(ins.outputs)
        together = not self.members or not given.isdisjoint({*self.made, *self.read})
        return together and len(self.members) < MOST and wide <= _WIDEST

    def add(self, ins: Instruction, uses: dict[Var, int]) -> None:
        self.members.append(ins)
        for v in inputs_of(ins):
            if v not in self.made:
                self.read[v] = None
            elif self.left[v] == 1:
                del self.left[v]
            else:
                self.left[v] -= 1
        self.made.update(ins.outputs)
        self.left.update((o, uses[o]) for o in ins.outputs if o in uses)


class Fusion:
    """One walk over instructions, of which ``results`` are wanted in the end."""

    def __init__(
        self, instructions: Sequence[Instruction], metas: dict, results: Iterable[Var], fast: bool
    ) -> None:
        self.instructions, self.metas, self.fast = instructions, metas, fast
        self.open: dict[tuple, Any] = {}  # by shape
        self.done: list[Instruction] = []
        self.uses: dict[Var, int] = {}
        for ins in instructions:
            for v in inputs_of(ins):
                self.uses[v] = self.uses.get(v, 0) + 1
        for v in results:
            self.uses[v] = self.uses.get(v, 0) + 1

    def fits(self, ins: Instruction) -> bool:
        """Whether the instruction may be part of a region."""
        return is_elementwise(ins, self.metas, self.fast)

    def shape_of(self, ins: Instruction) -> tuple:
        """The shape of the region that it may be part of."""
        return tuple(self.metas[ins.outputs[0]][0])

    def opened(self, shape: tuple) -> Open:
        """A region that begins."""
        return Open(shape)

    def whole(self, members: list, inputs: tuple, outputs: tuple) -> Fused:
        """What stands in the graph for the members."""
        return Region(members, inputs, outputs, self.metas, self.fast).primitive()

    def run(self) -> list[Instruction]:
        for ins in self.instructions:
            if self.fits(ins):
                self._take(ins)
            else:
                self._end_where(ins)
                self.done.append(ins)
        self._end_all()
        return self.done

    def _take(self, ins: Instruction) -> None:
        shape, given = self.shape_of(ins), set(inputs_of(ins))
        for other in list(self.open.values()):
            if other.gives(given) and (other.shape != shape or not other.late.isdisjoint(given)):
                self._end(other)
        region = self.open.get(shape)
        if region is not None and not region.wants(ins):
            self._end(region)
        if shape not in self.open:
            self.open[shape] = self.opened(shape)
        self.open[shape].add(ins, self.uses)

    def _end_where(self, ins: Instruction) -> None:
        """End the regions that ``ins`` needs values of; all, where it writes."""
        if ins.prim.mutates:
            self._end_all()
        given = set(inputs_of(ins))
        for region in list(self.open.values()):
            if region.gives(given):
                self._end(region)

    def _end_all(self) -> None:
        for region in list(self.open.values()):
            self._end(region)

    def _end(self, region: Open) -> None:
        """Put a region where the walk is, after those that it needs."""
        if self.open.get(region.shape) is not region:
            return
        del self.open[region.shape]
        for other in list(self.open.values()):
            if other.gives(region.read):
                self._end(other)
        self.done += self._fused(region)

    def _fused(self, region: Any) -> list[Instruction]:
        inputs, outputs = tuple(region.read), tuple(region.left)
        if not outputs or (len(region.members) < 2 and "rule" not in region.members[0].params):
            return region.members  # (a derivative takes longer to be called than a kernel)
        return [Instruction(self.whole(region.members, inputs, outputs), inputs, {}, outputs)]


def is_elementwise(ins: Instruction, metas: dict, fast: bool = False) -> bool:
    """Whether it is an operation on elements that a kernel can do."""
    if not ins.outputs:
        return False
    shapes = {tuple(metas[o][0]) for o in ins.outputs}
    shape = tuple(metas[ins.outputs[0]][0])
    given = [tuple(metas[v][0]) for v in inputs_of(ins)]
    if len(shapes) != 1 or not shape or 0 in shape or shape not in given:
        return False
    return expressions_of(ins, metas, fast) is not None


def fused(
    instructions: Sequence[Instruction], metas: dict, results: Iterable[Var], fast: bool = False
) -> list[Instruction]:
    """``instructions`` with regions in place of those that feed each other element by element."""
    return Fusion(instructions, metas, results, fast).run()


def materialized(graph: Graph) -> set[Var]:
    """The values that lie in memory when ``graph`` has been fused."""
    found = fused(graph.instructions, graph.metas, graph.results())
    return {v for ins in found for v in (*inputs_of(ins), *ins.outputs)}


def fuse(graph: Graph) -> Graph:
    """Put elementwise operations together, so that each element is read and written once."""
    return graph.with_instructions(fused(graph.instructions, graph.metas, graph.results()))


def fuse_fast(graph: Graph) -> Graph:
    """The same, with exponentials and their like, whose last bits are not NumPy's."""
    return graph.with_instructions(fused(graph.instructions, graph.metas, graph.results(), True))
