"""Which gradients travel together: pure functions from parameters' sizes to a plan.

Li et al., PyTorch Distributed (VLDB 2020), section 3.2.3: buckets in the order in which gradients
become ready, guessed at first to be the reverse order of definition; the first one small, so that
communication starts early. Knows no tensor and no group.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

ALIGN = 64  # bytes; every gradient starts on a cache line


@dataclass(frozen=True)
class ParamMeta:
    """What the plan needs to know of a parameter."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def numel(self) -> int:
        n = 1
        for d in self.shape:
            n *= d
        return n


@dataclass(frozen=True)
class Slot:
    """A parameter's place in its bucket: ``offset`` and ``numel`` in elements."""

    param: int
    offset: int
    numel: int


@dataclass(frozen=True)
class Bucket:
    """Gradients that are reduced by one collective."""

    dtype: np.dtype
    slots: tuple[Slot, ...]
    numel: int  # padding between slots included

    @property
    def nbytes(self) -> int:
        return self.numel * self.dtype.itemsize


def plan_buckets(
    params: Sequence[ParamMeta],
    order: Sequence[int],
    limits: Sequence[int],
    align: int = ALIGN,
    alone: Collection[int] = (),
) -> tuple[Bucket, ...]:
    """Buckets for gradients that become ready in ``order`` (a permutation of the parameters).

    A bucket is closed once it holds its limit (in bytes) or more; the last of ``limits`` holds for
    all that follow. A bucket has one element type. Buckets come in the order in which their last
    gradient does. Gradients begin at multiples of ``align`` bytes. Parameters in ``alone`` have
    buckets of their own.
    """
    open_: dict[np.dtype, list[int]] = {}
    sizes: dict[np.dtype, int] = {}
    closed: list[list[int]] = []
    for i in order:
        if i in alone:
            closed.append([i])
            continue
        kind = params[i].dtype
        open_.setdefault(kind, []).append(i)
        sizes[kind] = sizes.get(kind, 0) + params[i].numel * kind.itemsize
        if sizes[kind] >= limits[min(len(closed), len(limits) - 1)]:
            closed.append(open_.pop(kind))
            sizes[kind] = 0
    closed.extend(open_.values())
    turn = {i: n for n, i in enumerate(order)}
    closed.sort(key=lambda members: turn[members[-1]])
    return tuple(_lay_out(params, members, align) for members in closed)


def last_first(params: Sequence[ParamMeta]) -> range:
    """The order to begin with: the reverse of the definition."""
    return range(len(params) - 1, -1, -1)


def _lay_out(params: Sequence[ParamMeta], members: list[int], align: int) -> Bucket:
    kind = params[members[0]].dtype
    step = max(align // kind.itemsize, 1)
    slots, offset = [], 0
    for i in members:
        slots.append(Slot(i, offset, params[i].numel))
        offset += -(-params[i].numel // step) * step
    return Bucket(kind, tuple(slots), offset)
