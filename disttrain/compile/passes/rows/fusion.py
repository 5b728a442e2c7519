"""The pass that puts operations on rows together with elementwise ones.

The walk is that of ``fusion``. Where a region has no operation on rows, its members stay as they
are, for ``fuse`` to take.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...graph import Graph
from ...instruction import Instruction, Var
from ..fusion import Fusion, Open
from ..region import Fused
from ..values import inputs_of
from .operations import kinds_of, operation_of
from .region import SHORT, RowRegion, spaces_of
from .sums import summed


class _Rows(Open):
    """A region that still grows. ``later``: what uses its sums and what it knows of rows, and runs
    after it."""

    def __init__(self, shape: tuple, metas: dict) -> None:
        super().__init__(shape)
        self.metas = metas
        self.later: list[Instruction] = []
        self.totals: set[Var] = set()  # over rows
        self.spaces: dict[Var, str | None] = {}
        self.on_rows = self.sums = self.long = False

    def wants(self, ins: Instruction) -> bool:
        """Also: of one type, with sums or with operands that repeat in odd ways, not both, and
        without what is known when all rows have been seen."""
        operation = operation_of(ins, self.metas)
        known = set() if operation is None else set(operation.given.values())
        parts = {v for v in self.made if tuple(self.metas[v][0]) != self.shape} | self.totals
        if not parts.isdisjoint(set(inputs_of(ins)) - (known - self.totals)):
            return False
        floats = {k for m in (*self.members, ins) for k in kinds_of(m, self.metas) if k.kind == "f"}
        long, sums = self._told(ins)
        spaces = spaces_of(ins, self.metas, self.shape)
        if any(self.spaces.get(v, space) != space for v, space in spaces.items()):
            return False  # (in a square, the same numbers along rows and along columns)
        if len(floats) > 1 or ((long or self.long) and (sums or self.sums)):
            return False
        return super().wants(ins)

    def add(self, ins: Instruction, uses: dict[Var, int]) -> None:
        self.spaces.update(spaces_of(ins, self.metas, self.shape))
        long, sums = self._told(ins)
        operation = operation_of(ins, self.metas)
        self.totals.update(ins.outputs if operation is None and sums else ())
        self.totals.update(() if operation is None else operation.sums.values())
        self.long, self.sums = self.long or long, self.sums or sums
        self.on_rows = self.on_rows or sums or operation_of(ins, self.metas) is not None
        super().add(ins, uses)

    def _told(self, ins: Instruction) -> tuple[bool, bool]:
        """Whether it has operands that repeat in odd ways, and whether it has sums."""
        operation = operation_of(ins, self.metas)
        spaces = spaces_of(ins, self.metas, self.shape)
        long = any(space not in SHORT for v, space in spaces.items() if v not in self.made)
        sums = summed(ins, self.metas) is not None or bool(operation and operation.sums)
        return long, sums


class RowFusion(Fusion):
    """One walk over instructions."""

    def fits(self, ins: Instruction) -> bool:
        if operation_of(ins, self.metas) is not None:
            return len(kinds_of(ins, self.metas)) == 1
        added = summed(ins, self.metas)
        if added is not None:
            region = self.open.get(tuple(self.metas[added][0]))
            return region is not None and added in region.made and region.wants(ins)
        return super().fits(ins)

    def opened(self, shape: tuple) -> _Rows:
        return _Rows(shape, self.metas)

    def shape_of(self, ins: Instruction) -> tuple:
        """The shape of the rows that ``ins`` is about."""
        added = summed(ins, self.metas)
        return tuple(self.metas[ins.outputs[0] if added is None else added][0])

    def whole(self, members: list, inputs: tuple, outputs: tuple) -> Fused:
        return RowRegion(members, inputs, outputs, self.metas, self.fast).primitive()

    def _take(self, ins: Instruction) -> None:
        region = self._after(ins)
        if region is None:
            super()._take(ins)
        else:
            region.later.append(ins)
            region.late.update(ins.outputs)

    def _after(self, ins: Instruction) -> _Rows | None:
        """The region after which it may run, because it needs no more of it than sums and what is
        told of rows, and nothing of others."""
        given = set(inputs_of(ins))
        needed = [r for r in self.open.values() if r.gives(given)]
        if len(needed) != 1 or not needed[0].on_rows or needed[0].shape == self.shape_of(ins):
            return None
        rows = {v for v in needed[0].made & given if self.metas[v][0] == needed[0].shape}
        return None if rows else needed[0]

    def _fused(self, region: _Rows) -> list[Instruction]:
        if not region.on_rows or len(region.members) < 2:
            return [*region.members, *region.later]
        inputs, outputs = tuple(region.read), tuple(region.left)
        prim = self.whole(region.members, inputs, outputs)
        return [Instruction(prim, inputs, {}, outputs), *region.later]


def fused_rows(
    instructions: Sequence[Instruction], metas: dict, results: Iterable[Var], fast: bool = False
) -> list[Instruction]:
    """``instructions`` with regions in place of operations on rows and what feeds them, or uses
    them, element by element."""
    return RowFusion(instructions, metas, results, fast).run()


def fuse_rows(graph: Graph) -> Graph:
    """Put operations on rows together with elementwise ones, so that each element is read and
    written once."""
    done = fused_rows(graph.instructions, graph.metas, graph.results())
    return graph.with_instructions(done)
