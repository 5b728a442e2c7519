"""Liveness: how long the memory that a program makes is held, and how much of it at a time.

(A. V. Aho et al., Compilers, 2nd ed., section 9.2.5.) A view holds the memory that it shows; what
the program hands on, it holds to the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from math import prod

from ..graph import Graph
from ..instruction import Instruction, Var
from .values import Values, inputs_of


class Liveness:
    """``spans``: per value with memory of its own, the numbers of the instructions that make it and
    that look at it, views of it included. ``profile``: bytes held while each instruction runs."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.values = graph, Values(graph)
        self.spans: dict[Var, list[int]] = {}
        given = {*graph.inputs, *graph.outside()}
        for i, ins in enumerate(graph.instructions):
            self._share(ins)
            for v in dict.fromkeys(map(self.values.root, (*inputs_of(ins), *ins.outputs))):
                if v not in given:
                    self.spans.setdefault(v, []).append(i)
        for v in map(self.values.root, graph.results()):
            if v not in given:
                self.spans[v].append(len(graph.instructions))
        self.profile = list(self._profile())

    def _share(self, ins: Instruction) -> None:
        """Let results lie where operands did, as far as these may be written over."""
        metas, roots = self.graph.metas, self.values.roots
        free = [ins.args[k] for k in ins.params.get("over", ())]
        for o in ins.outputs if free else ():
            at = next((v for v in free if metas[v] == metas[o]), None)
            if at is not None:
                free.remove(at)
                roots[o] = self.values.root(at)

    def last(self, v: Var) -> int:
        """The number of the last instruction that looks at the memory of ``v``."""
        return self.spans[v][-1]

    def size(self, v: Var) -> int:
        """Bytes of a value."""
        shape, kind = self.graph.metas[v]
        return prod(shape) * kind.itemsize

    def _profile(self) -> Iterator[int]:
        changes = [0] * (len(self.graph.instructions) + 2)
        for v, uses in self.spans.items():
            changes[uses[0]] += self.size(v)
            changes[uses[-1] + 1] -= self.size(v)
        return accumulate(changes[: len(self.graph.instructions) + 1])

    @property
    def peak(self) -> int:
        """The most bytes that are held at a time."""
        return max(self.profile)

    def held(self, at: int) -> list[Var]:
        """The values that are held while instruction ``at`` runs."""
        return [v for v, uses in self.spans.items() if uses[0] <= at <= uses[-1]]


def told(graph: Graph) -> str:
    """The most that is held at a time, in words."""
    return f"{Liveness(graph).peak / 1e6:.2f} MB"
