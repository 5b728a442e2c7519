"""What a wrapper does for a rank that has no more input, and what the others tell it for that.

Knows the wrapper's parts by their methods.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np

from ...comm.group.group import ProcessGroup
from ..collectives.coalesced import broadcast_coalesced
from ..join import JoinHook

ACTIVE, SYNC, BUFFERS = 1, 2, 4


def announce(group: ProcessGroup, flags: int) -> list[int]:
    """Every rank's flags for the iteration that begins; 0 from a rank without input."""
    told = np.zeros(group.size, np.int64)
    told[group.rank] = flags
    group.all_reduce(told)
    return told.tolist()


def source(told: list[int]) -> int:
    """The rank whose buffers all take: the last one that has input."""
    return max(r for r, flags in enumerate(told) if flags & ACTIVE)


class Shadow(JoinHook):
    """A rank without input takes part in the iterations of the others, with zeros."""

    def __init__(self, ddp: Any, divide_by_initial_world_size: bool) -> None:
        self.ddp = ddp
        ddp.reducer.scaling.divide_by_initial = divide_by_initial_world_size

    def main_hook(self) -> None:
        ddp = self.ddp
        told = announce(ddp.process_group, 0)
        flags = functools.reduce(operator.or_, told)
        reducer = ddp.reducer
        if flags & SYNC:
            reducer.scaling.count_active(told)
            reducer.rebuild()
        if flags & BUFFERS:
            ddp._sync_buffers(source(told))
        if flags & SYNC:
            reducer.shadow()
        ddp.require_forward_param_sync = bool(flags & SYNC)

    def post_hook(self, is_last_joiner: bool) -> None:
        """All get the model of a rank that has trained to the end."""
        ddp = self.ddp
        scaling = ddp.reducer.scaling
        scaling.divide_by_initial, scaling.in_join = True, False
        scaling.count_active([ACTIVE] * ddp.process_group.size)
        told = announce(ddp.process_group, ACTIVE if is_last_joiner else 0)
        state = ddp._state(ddp.forward_sync_buffers)
        broadcast_coalesced(ddp.process_group, state, root=source(told))
