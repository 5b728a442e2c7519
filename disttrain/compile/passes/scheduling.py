"""Schedule: work with other ranks begins as early as what it needs is there, and is waited for as
late as what it gives is needed.

The order in which work begins stays that of the program, so that it is one order on all ranks,
those that run the program itself among them. What is begun ahead (the next unit's weights) never
passes the beginning of what comes before it: one unit more than the program holds. And what fails
does so before the world can see anything that the program does after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod

from ..graph import Graph
from ..instruction import Instruction, Var
from ..work import on_tensors, work_of
from .values import Values, inputs_of

LEAST = 1 << 16  # bytes that are worked on meanwhile, from which it pays to wait later


def schedule(graph: Graph) -> Graph:
    """Begin collectives, gathers of weights and reductions of gradients early; wait late."""
    if not any(_is_early(ins) or _parts(ins) for ins in graph.instructions):
        return graph
    return graph.with_instructions(_Schedule(graph).order)


def _parts(ins: Instruction) -> tuple | None:
    """What begins the instruction's work and what is left of it, where it has two parts."""
    parts = getattr(ins.params.get("effect"), "parts", None)
    return None if parts is None else parts()


def _is_early(ins: Instruction) -> bool:
    return getattr(ins.params.get("effect"), "early", False) and not ins.prim.mutates


class _Schedule:
    """The instructions of one graph in their new ``order``."""

    def __init__(self, graph: Graph) -> None:
        self.metas, self.values = graph.metas, Values(graph)
        self.own = {o for ins in graph.instructions if not ins.prim.outward for o in ins.outputs}
        self.order: list[Instruction] = []
        self.begun: set[int] = set()  # by id, instructions that begin work
        self.waits: set[int] = set()
        parted: list[tuple[Instruction, ...]] = []
        for ins in graph.instructions:
            parted += self._add(ins)
        for whole, begin, wait in parted:
            self._wait_late(whole, begin, wait)

    def _add(self, ins: Instruction) -> Iterator[tuple[Instruction, ...]]:
        """Put the instruction in its place; with its two parts, where it has become two."""
        parts = _parts(ins) if all(map(self._is_own, inputs_of(ins))) else None
        if parts is None:
            self._put_early(ins) if _is_early(ins) else self.order.append(ins)
        elif parts[1] is ins.params["effect"]:
            self._put_ahead(_named(ins, "ahead", parts[0], ()))
            self.order.append(ins)
        else:
            ends = zip(("begin", "wait"), parts, strict=True)
            begin, wait = (_named(ins, end, part, ins.prim.mutates) for end, part in ends)
            self._put_early(begin)
            self.order.append(wait)
            self.waits.add(id(wait))
            yield ins, begin, wait

    def _is_own(self, v: Var) -> bool:
        """Whether the program has made the memory of ``v``, in which nothing else can lie."""
        return self.values.root(v) in self.own

    def _roots(self, values: Iterable[Var]) -> set[Var]:
        return set(map(self.values.root, values))

    # --- beginnings ---------------------------------------------------------------------------
    def _place(self, ins: Instruction) -> int:
        """The first place where all that it needs is there."""
        at = len(self.order)
        touched = self._roots(inputs_of(ins))
        written = self._roots(ins.args[i] for i in ins.prim.mutates)
        while at and self._may_be_later(self.order[at - 1], touched, written):
            at -= 1
        return at

    def _may_be_later(self, ins: Instruction, touched: set[Var], written: set[Var]) -> bool:
        """Whether ``ins`` may run after work begins that touches, and writes to, those values."""
        quiet = getattr(ins.params.get("effect"), "quiet", False)
        if ins.effect and not (quiet or id(ins) in self.waits):
            return False
        if id(ins) in self.waits:
            return not touched & self._roots(inputs_of(ins))
        return not (touched & self._roots(ins.outputs) or written & self._roots(inputs_of(ins)))

    def _put_early(self, ins: Instruction) -> None:
        self.begun.add(id(ins))
        self.order.insert(self._place(ins), ins)

    def _put_ahead(self, ins: Instruction) -> None:
        """Where something is done between it and the end."""
        at = self._place(ins)
        if any(not other.effect for other in self.order[at:]):
            self.begun.add(id(ins))
            self.order.insert(at, ins)

    # --- ends ---------------------------------------------------------------------------------
    def _wait_late(self, whole: Instruction, begin: Instruction, wait: Instruction) -> None:
        """Move the wait; one piece stays one where nothing is done meanwhile."""
        first, at = (_find(self.order, ins) for ins in (begin, wait))
        del self.order[at]
        touched = self._roots(inputs_of(wait))
        written = self._roots(wait.args[i] for i in wait.prim.mutates)
        while at < len(self.order) and self._may_be_earlier(self.order[at], touched, written):
            at += 1
        if sum(map(self._bytes, self.order[first + 1 : at])) < LEAST:
            self.order[first] = whole
        else:
            self.order.insert(at, wait)

    def _may_be_earlier(self, ins: Instruction, touched: set[Var], written: set[Var]) -> bool:
        """Whether ``ins`` may run while that work is under way."""
        if id(ins) in self.begun or id(ins) in self.waits:
            return not touched & self._roots(inputs_of(ins)) and not _is_early(ins)
        return not (ins.effect or written & self._roots(inputs_of(ins)))

    def _bytes(self, ins: Instruction) -> int:
        """How much is worked on by an instruction of this rank alone."""
        if ins.effect or ins.prim.view:
            return 0
        metas = [self.metas[v] for v in (*inputs_of(ins), *ins.outputs)]
        return sum(prod(shape) * kind.itemsize for shape, kind in metas)


def _named(ins: Instruction, end: str, part: object, writes: tuple[int, ...]) -> Instruction:
    prim = work_of(f"{ins.prim.name}_{end}", on_tensors, writes)
    return Instruction(prim, ins.args, {"effect": part}, ())


def _find(order: list[Instruction], ins: Instruction) -> int:
    return next(i for i, other in enumerate(order) if other is ins)


def told(graph: Graph) -> Iterator[str]:
    """What was done with work with other ranks, in words."""
    begun: dict[object, tuple[int, Instruction]] = {}
    for at, ins in enumerate(graph.instructions):
        effect, name = ins.params.get("effect"), ins.prim.name
        if name.endswith("_begin") and hasattr(effect, "end"):
            begun[effect] = at, ins
        elif name.endswith("_wait"):
            first, start = begun[effect.begin]  # type: ignore[union-attr]
            yield f"{start.prim.name[:-6]} begins at {first} and is waited for at {at}"
        elif name.endswith("_ahead"):
            yield f"{name[:-6]} of {effect!r} begins ahead at {at}"
        elif name.endswith("_each"):
            yield f"{len(ins.args)} {name[:-5]} are one message at {at}"


__all__ = ["schedule", "told"]
