"""Many parameters as one vector, cut into equal chunks: pure functions from sizes to a plan.

The layout of ``FullyShardedDataParallel``: parameters lie one behind the other, the whole is padded
to a multiple of the number of ranks, and rank r has the r-th chunk, wherever that cuts a parameter.
A *block* of gradients is a chunk with one element per parameter behind it: whether the parameter
received a gradient.

Zhao et al., PyTorch FSDP, VLDB 2023. Knows no tensor and no group.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

STEP = 16  # elements; blocks of gradients are a multiple of it


@dataclass(frozen=True)
class FlatPiece:
    """One parameter's place in the vector: ``numel`` elements from ``start``."""

    name: str
    shape: tuple[int, ...]
    start: int
    numel: int


@dataclass(frozen=True)
class FlatLayout:
    """All places, and how many ranks share the vector."""

    pieces: tuple[FlatPiece, ...]
    world: int

    @cached_property
    def numel(self) -> int:
        """Elements of all parameters."""
        return sum(p.numel for p in self.pieces)

    @cached_property
    def chunk(self) -> int:
        """Elements of one rank."""
        return -(-self.numel // self.world)

    @property
    def padded(self) -> int:
        return self.chunk * self.world

    @cached_property
    def flagged(self) -> int:
        """Elements of one block of gradients."""
        return -(-(self.chunk + len(self.pieces)) // STEP) * STEP

    def part(self, i: int, rank: int) -> tuple[int, int]:
        """Which elements of parameter ``i`` are ``rank``'s: from, to."""
        p = self.pieces[i]
        lo = min(max(rank * self.chunk - p.start, 0), p.numel)
        return lo, min(max((rank + 1) * self.chunk - p.start, 0), p.numel)

    def local(self, i: int, rank: int) -> tuple[int, int]:
        """Where these elements lie in ``rank``'s chunk: from, to."""
        lo, hi = self.part(i, rank)
        at = self.pieces[i].start + lo - rank * self.chunk
        return (at, at + hi - lo) if hi > lo else (0, 0)

    def cuts(self, i: int) -> list[tuple[int, int, int, int]]:
        """Parameter ``i`` over the ranks: (rank, place in its chunk, from, to)."""
        p = self.pieces[i]
        if not p.numel:
            return []
        out = []
        for rank in range(p.start // self.chunk, (p.start + p.numel - 1) // self.chunk + 1):
            lo, hi = self.part(i, rank)
            out.append((rank, self.local(i, rank)[0], lo, hi))
        return out


def plan_flat(params: Sequence[tuple[str, tuple[int, ...]]], world: int) -> FlatLayout:
    """``params``: (name, shape) in the order of the vector."""
    pieces, start = [], 0
    for name, shape in params:
        numel = math.prod(shape)
        pieces.append(FlatPiece(name, tuple(shape), start, numel))
        start += numel
    return FlatLayout(tuple(pieces), world)


def views(flat: Any, layout: FlatLayout) -> list[Any]:
    """The parameters as views of the whole vector."""
    return [flat[p.start : p.start + p.numel].reshape(p.shape) for p in layout.pieces]
