"""Which gradients travel together: a pure function from parameters' sizes to a plan.

Li et al., PyTorch Distributed (VLDB 2020), section 3.2.3: buckets in reverse order of definition,
because gradients become ready in about that order; the first one small, so that communication
starts early. Knows no tensor and no group.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    params: Sequence[ParamMeta], cap_bytes: int, first_cap_bytes: int
) -> tuple[Bucket, ...]:
    """Buckets of one dtype each, at most about their cap, last-defined parameters first.

    A bucket is closed once it holds its cap or more. ``first_cap_bytes`` limits the bucket that is
    launched first.
    """
    open_: dict[np.dtype, list[int]] = {}
    sizes: dict[np.dtype, int] = {}
    closed: list[list[int]] = []
    for i in reversed(range(len(params))):
        kind = params[i].dtype
        open_.setdefault(kind, []).append(i)
        sizes[kind] = sizes.get(kind, 0) + params[i].numel * kind.itemsize
        limit = cap_bytes if closed else first_cap_bytes
        if sizes[kind] >= limit:
            closed.append(open_.pop(kind))
            sizes[kind] = 0
    closed.extend(open_.values())
    closed.sort(key=lambda members: -members[0])
    return tuple(_lay_out(params, members) for members in closed)


def _lay_out(params: Sequence[ParamMeta], members: list[int]) -> Bucket:
    kind = params[members[0]].dtype
    step = max(ALIGN // kind.itemsize, 1)
    slots, offset = [], 0
    for i in members:
        slots.append(Slot(i, offset, params[i].numel))
        offset += -(-params[i].numel // step) * step
    return Bucket(kind, tuple(slots), offset)
