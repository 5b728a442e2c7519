"""Branches as one instruction: ``Switch`` runs the body of a number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core import bodies
from ..core.bodies import Body
from ..ops.functions.elementwise import where
from ..ops.primitives.batching import fronted
from . import derived_bodies as derived
from .derived_bodies import is_moving
from .loops import Instructive, beside, number_of, zeros_of


class Switch(Instructive):
    """Arguments: the number of a branch, and what all branches take."""

    def __init__(self, branches: Sequence[Body]) -> None:
        self.branches = list(branches)
        self.made: dict[Any, Any] = {}
        first = self.branches[0]
        super().__init__("cond", 1 + first.count, first.results, self.branches)

    def _forward(self, index: Any, *arrays: Any) -> list:
        body = self.branches[min(max(int(number_of(index)), 0), len(self.branches) - 1)]
        return [bodies.own(r, arrays, body) for r in body.run()(list(arrays))]

    def _pull(self, g: tuple, out: Any, values: Any, node: Any, needs: tuple) -> tuple:
        index, *given = values
        flags = tuple(
            need and is_moving(meta)
            for need, meta in zip(needs[1:], self.branches[0].given, strict=True)
        )
        if flags not in self.made:
            self.made[flags] = Switch([derived.pulled_back(b, flags) for b in self.branches])
        ends = [
            zeros_of(meta, values) if c is None else c
            for c, meta in zip(g, self.results, strict=True) if is_moving(meta)
        ]  # fmt: skip
        found = iter(self.made[flags](index, *given, *ends))
        return (None, *[next(found) if flag else None for flag in flags])

    def _batched(self, args: tuple, dims: tuple, params: dict, size: int) -> tuple:
        flags = [d is not None for d in dims[1:]]
        apart = dims[0] is not None
        index, *given = [
            a if d is None else fronted(a, d, size) for a, d in zip(args, dims, strict=True)
        ]
        key = ("batched", size, apart, *flags)
        if key not in self.made:
            self.made[key] = self._made_batched(flags, size, apart)
        whole, there = self.made[key]
        if not apart:
            return whole(index, *given), tuple([0 if has else None for has in there])
        outs = whole.branches[-1](*given)
        for i in reversed(range(len(self.branches) - 1)):
            here = index <= i
            found = whole.branches[i](*given)
            outs = [where(beside(here, a), a, b) for a, b in zip(found, outs, strict=True)]
        return tuple(outs), (0,) * len(self.results)

    def _made_batched(self, flags: list[bool], size: int, apart: bool) -> tuple:
        """The branches over a batch; and what they give for each example: all, where examples
        choose ``apart``."""

        def over(force: list[bool]) -> list:
            return [derived.batched(b, flags, size, force, "different") for b in self.branches]

        found = over([apart] * len(self.results))
        there = [any(has) for has in zip(*(f.moves for f in found), strict=True)]
        return Switch([f.body for f in over(there)]), there

    def _pushed(self, primals: tuple, tangents: tuple) -> tuple:
        flags = tuple(t is not None for t in tangents[1:])
        key = ("pushed", *flags)
        if key not in self.made:
            found = [derived.pushed(b, flags, [False] * len(self.results)) for b in self.branches]
            there = [any(has) for has in zip(*(f.moves for f in found), strict=True)]
            found = [derived.pushed(b, flags, there) for b in self.branches]
            self.made[key] = Switch([f.body for f in found]), there
        whole, there = self.made[key]
        outs = whole(*primals, *[t for t in tangents[1:] if t is not None])
        n = len(self.results)
        rest = iter(outs[n:])
        return tuple(outs[:n]), tuple(next(rest) if has else None for has in there)
