"""Coalescing: small collectives of one kind that come one behind the other go in one message.

They are done where the last of them is. Every element is reduced over the same ranks in the same
order as alone, so the bits are the same; ranks that do them one by one meet it (``Effect.joined``).
"""

from __future__ import annotations

from math import prod
from typing import Any

from ..graph import Graph
from ..instruction import Instruction, Var
from ..work import on_tensors, work_of
from .values import Values, inputs_of

MOST = 8 << 10  # bytes of one message: what is larger costs more to put together than it saves


def coalesce(graph: Graph) -> Graph:
    """Join neighbours that do not need each other's results."""
    if sum(_is_one(ins) for ins in graph.instructions) < 2:
        return graph
    joining, order, at = _Joining(graph), list(graph.instructions), 0
    while at < len(order):
        if _is_one(order[at]):
            at = joining.join(order, at)
        at += 1
    return graph.with_instructions(order) if len(order) < len(graph.instructions) else graph


def _is_one(ins: Instruction) -> bool:
    """Whether it is a collective on one tensor, which it writes to, that may be joined."""
    joined = getattr(ins.params.get("effect"), "joined", None)
    return joined is not None and ins.prim.mutates == (0,) and len(ins.args) == 1


class _Joining:
    """What is known of the values of one graph."""

    def __init__(self, graph: Graph) -> None:
        self.metas, self.values = graph.metas, Values(graph)
        self.own = {o for ins in graph.instructions if not ins.prim.outward for o in ins.outputs}

    def join(self, order: list[Instruction], at: int) -> int:
        """Join what follows on ``order[at]``, in place; where that is then."""
        found, before = [order[at]], list[Instruction]()
        after, behind = list[Instruction](), list[Instruction]()  # the first; up to the last one
        if not self._fits(found):
            return at
        end = at + 1
        for i in range(at + 1, len(order)):
            ins = order[i]
            if not ins.effect:
                after.append(ins)
                continue
            needed = self._needed(ins, after, found) if self._fits([*found, ins]) else None
            if needed is None:
                break
            found.append(ins)
            before += needed
            after = [other for other in after if not any(other is n for n in needed)]
            behind, end = list(after), i + 1
        if len(found) == 1:
            return at
        order[at:end] = [*before, _joined(found), *behind]
        return at + len(before)

    def _fits(self, found: list[Instruction]) -> bool:
        """Whether these go in one message, and lie in memory of their own each."""
        if not all(map(_is_one, found)):
            return False
        given = [ins.args[0] for ins in found]
        roots = {self.values.root(v) for v in given}
        if len(roots) < len(given) or not roots <= self.own:
            return False
        metas = [self.metas[v] for v in given]
        sizes = [prod(shape) * kind.itemsize for shape, kind in metas]
        if len({kind for _, kind in metas}) > 1 or sum(sizes) > MOST:
            return False
        return len(found) == 1 or _effect_of(found) is not None

    def _needed(
        self, ins: Instruction, between: list[Instruction], found: list[Instruction]
    ) -> list[Instruction] | None:
        """Which of the instructions ``between`` must run before ``ins``; None where one of them
        looks at what ``found`` give."""
        root = self.values.root
        results = {root(other.args[0]) for other in found}
        written = root(ins.args[0])
        wanted, needed = {written}, list[Instruction]()
        for other in reversed(between):
            given: set[Var] = set(map(root, inputs_of(other)))
            if written in given or wanted & set(map(root, other.outputs)):
                if results & given:
                    return None
                wanted |= given
                needed.append(other)
        return needed[::-1]


def _effect_of(found: list[Instruction]) -> Any:
    first, *others = (ins.params["effect"] for ins in found)
    return first.joined(others)


def _joined(found: list[Instruction]) -> Instruction:
    args = tuple(ins.args[0] for ins in found)
    prim = work_of(f"{found[0].prim.name}_each", on_tensors, tuple(range(len(args))))
    return Instruction(prim, args, {"effect": _effect_of(found)}, ())


__all__ = ["coalesce"]
