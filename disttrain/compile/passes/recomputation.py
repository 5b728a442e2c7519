"""Recomputation: what is cheap to compute again is not kept until backward.

(T. Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016; chosen value by value, where
the most is held: R. Kumar et al., Efficient Rematerialization for Deep Networks, NeurIPS 2019.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import NamedTuple

from ..graph import Graph
from ..instruction import Instruction, Var
from .device_region import is_elementwise_there
from .fusion import is_elementwise, materialized
from .liveness import Liveness
from .values import inputs_of

_PRODUCTS = frozenset(("linear", "matmul"))  # whose cost per element is the length of a row
_HEAVY = 8  # what an element of a convolution takes at least, to one of another operation
_LIGHT = frozenset(
    "layer_norm rms_norm group_norm softmax log_softmax clone contiguous take".split()
)
_LONGEST = 6  # values that are made anew for one
_LEAST = 1 << 16  # bytes of a value that is not small
_LITTLE = 0.05  # of a program's work
_PER_BYTE = 16  # multiplications of a product that take as long as an element of another operation


class Recompute:
    """The pass for a ``budget``: the share of its peak of memory that a program may hold. Values
    are computed again, the cheapest per byte first, until it holds no more, or none is left of
    which that helps. ``light``: no products, nothing small, and little of the program's work."""

    __name__ = "recompute"

    def __init__(self, budget: float, light: bool = False) -> None:
        self.budget, self.light = budget, light

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recompute) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash((self.budget, self.light))

    def __call__(self, graph: Graph) -> Graph:
        alive = Liveness(graph)
        most = self.budget * alive.peak
        known = materialized(graph) if self.light and alive.peak > _LEAST else None
        left = _LITTLE * sum(_work(ins, graph.metas) for ins in graph.instructions)
        for _ in graph.instructions:
            if alive.peak <= most or (self.light and known is None):
                break
            best = min(_choices(alive, known), default=None)
            if best is None or (self.light and best.work > left):
                break
            left -= best.work
            graph = _again(graph, alive, best)
            alive = Liveness(graph)
        return graph.verify()


class _Choice(NamedTuple):
    """A value that is held where the most is, and the instruction that looks at it next."""

    cost: float  # per byte that is not held
    until: int
    number: int
    value: Var
    again: frozenset[Var]  # it, and what else must be made anew for it
    work: float


def _choices(alive: Liveness, known: set[Var] | None) -> Iterator[_Choice]:
    """``known``: of which values alone, and by light operations; None: of all."""
    graph, light = alive.graph, known is not None
    at = alive.profile.index(alive.peak)
    for v in alive.held(at):
        uses = alive.spans[v]
        until = next((i for i in uses if i > at), len(graph.instructions))
        if at in uses or until == len(graph.instructions) or _is_little(v, alive, known):
            continue
        need = _Need(alive, at, until, _LIGHT if light else _LIGHT | _PRODUCTS)
        if need.take(v) and alive.size(v) > need.prolonged:
            cost = need.cost / (alive.size(v) - need.prolonged)
            yield _Choice(cost, until, v.number, v, frozenset(need.again), need.cost)


def _is_little(v: Var, alive: Liveness, known: set[Var] | None) -> bool:
    return known is not None and (alive.size(v) < _LEAST or v not in known)


class _Need:
    """What it takes to make a value anew before instruction ``until``, and bytes that are held
    at ``at`` for that alone."""

    def __init__(self, alive: Liveness, at: int, until: int, names: frozenset[str]) -> None:
        self.alive, self.at, self.until, self.names = alive, at, until, names
        self.again: set[Var] = set()
        self.prolonged, self.cost = 0, 0.0

    def take(self, v: Var) -> bool:
        """Add ``v``, with those of its operands that are gone by then; False where that cannot
        be, or is too long a chain."""
        alive = self.alive
        made = alive.spans[v][0]
        ins = alive.graph.instructions[made]
        if len(self.again) == _LONGEST or not _repeatable(ins, alive, self.names):
            return False
        if not _unwritten(ins, made, self.until, alive):
            return False
        self.again.add(v)
        self.cost += _cost(ins, alive.graph.metas)
        for r in {alive.values.root(a) for a in inputs_of(ins)}:
            gone = r in alive.spans and alive.last(r) < self.at and r not in self.again
            if gone and not self.take(r):
                self.prolonged += alive.size(r)
        return True


def _repeatable(ins: Instruction, alive: Liveness, names: frozenset[str]) -> bool:
    """Whether other values of the same numbers may stand for its results. ``names``: of operations
    that may be done twice, beside those on elements."""
    if ins.effect or ins.prim.view or not all(map(alive.values.replaceable, ins.outputs)):
        return False
    graph = alive.graph
    if ins.prim.name in names or is_elementwise(ins, graph.metas):
        return True
    return is_elementwise_there(ins, graph.metas, graph.there)


def _unwritten(ins: Instruction, since: int, until: int, alive: Liveness) -> bool:
    """Whether nothing writes in between to what it reads. (Given values may overlap.)"""
    values = alive.values
    reads = {values.root(a) for a in inputs_of(ins)} & values.written
    written = {
        values.root(other.args[i])
        for other in (alive.graph.instructions[since:until] if reads else ())
        for i in other.prim.mutates
    }
    given = any(r not in alive.spans for r in reads)
    return not (reads & written or (given and any(w not in alive.spans for w in written)))


def _cost(ins: Instruction, metas: dict) -> float:
    work = sum(prod(metas[o][0]) for o in ins.outputs)
    if ins.prim.name in _PRODUCTS:
        (a, *_) = inputs_of(ins)
        work *= 1 + metas[a][0][-1] / _PER_BYTE
    return work


def _work(ins: Instruction, metas: dict) -> float:
    """``_cost``, of gradients of products and of convolutions too."""
    elements = sum(prod(metas[o][0]) for o in ins.outputs)
    first = next(inputs_of(ins), None)
    if ins.prim.name == "linear_backward" and first is not None:
        *rows, columns = metas[first][0]
        return elements * (1 + min(prod(rows), columns) / _PER_BYTE)
    return elements * _HEAVY if ins.prim.name.startswith("conv") else _cost(ins, metas)


def _again(graph: Graph, alive: Liveness, chosen: _Choice) -> Graph:
    """The graph in which a value, and views of it, are made anew before it is looked at next."""
    before, after = graph.instructions[: chosen.until], graph.instructions[chosen.until :]
    number = 1 + max(x.number for x in graph.metas if x.kind == "v")
    names: dict[Var, Var] = {}
    metas, again = dict(graph.metas), list[Instruction]()
    used = {a for ins in after for a in inputs_of(ins)}
    for ins in _chain(before, alive, chosen, used):
        outputs = tuple(Var("v", number + i) for i in range(len(ins.outputs)))
        number += len(outputs)
        metas.update((new, metas[o]) for new, o in zip(outputs, ins.outputs, strict=True))
        again.append(replace(ins.renamed(names), outputs=outputs))
        names.update(zip(ins.outputs, outputs, strict=True))
    there = graph.there | {new for old, new in names.items() if old in graph.there}
    later = [ins.renamed(names) for ins in after]
    return replace(graph, instructions=(*before, *again, *later), metas=metas, there=there)


def _chain(
    before: tuple[Instruction, ...], alive: Liveness, chosen: _Choice, used: set[Var]
) -> list[Instruction]:
    """What makes the value, what that needs, and those views of it that are ``used`` later."""
    root = alive.values.root
    wanted = {chosen.value, *(v for v in used if root(v) == chosen.value)}
    found = []
    for ins in reversed(before):
        if not wanted.isdisjoint(ins.outputs) and any(root(o) in chosen.again for o in ins.outputs):
            found.append(ins)
            wanted.update(inputs_of(ins))
    return found[::-1]
