"""What the values of a graph are to the world: which memory they lie in, who writes, who sees."""

from __future__ import annotations

from collections.abc import Iterator

from ..graph import Graph
from ..instruction import Instruction, Var
from ..memory import overlap, owner_of


class Values:
    """``root(v)``: the value in whose memory ``v`` lies. ``steady``: nothing writes there.
    ``seen``: the program hands it on, itself or as a view."""

    def __init__(self, graph: Graph) -> None:
        self.roots: dict[Var, Var] = {}
        written = []
        for ins in graph.instructions:
            if ins.prim.view:
                (source,) = [a for a in ins.args[:1] if isinstance(a, Var)]
                self.roots.update(dict.fromkeys(ins.outputs, self.root(source)))
            written += [ins.args[i] for i in ins.prim.mutates]
        self.written = {self.root(v) for v in written if isinstance(v, Var)}
        self.written |= _overlapping(graph, self.written)
        self.handed_on = {self.root(v) for v in graph.results()}
        self.metas = graph.metas

    def root(self, v: Var) -> Var:
        """The value whose memory ``v`` shows; ``v`` itself where that is its own."""
        return self.roots.get(v, v)

    def steady(self, v: Var) -> bool:
        """Whether no instruction writes to the memory of ``v``."""
        return self.root(v) not in self.written

    def seen(self, v: Var) -> bool:
        """Whether the program hands on the memory of ``v``."""
        return self.root(v) in self.handed_on

    def replaceable(self, v: Var) -> bool:
        """Whether another value of the same numbers may stand for ``v``: nobody writes to it, and
        nobody can tell whose memory it has."""
        return self.root(v) == v and self.steady(v) and not self.seen(v)


def _overlapping(graph: Graph, written: set[Var]) -> set[Var]:
    """The given values whose memory may be that of one that is written to: arguments and gradients
    lie where each call has them; of other tensors it is known."""
    outside = graph.outside()
    moving = {*graph.inputs, *graph.owners}
    targets = written & {*moving, *outside}
    if not targets:
        return set()
    if targets & moving:
        return {*moving, *outside}
    arrays = {v: t.array for v, t in zip(outside, graph.captured, strict=True) if v not in moving}
    hit: dict[int, list] = {}
    for v in targets:
        hit.setdefault(owner_of(arrays[v]), []).append(arrays[v])
    shared = {v for v, a in arrays.items() if any(overlap(a, b) for b in hit.get(owner_of(a), ()))}
    return moving | shared


def inputs_of(ins: Instruction) -> Iterator[Var]:
    """The values that an instruction reads."""
    return (a for a in ins.args if isinstance(a, Var))
