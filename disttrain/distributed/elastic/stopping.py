"""A job is asked to end (SIGTERM): all its ranks find out between the same two steps."""

from __future__ import annotations

import numpy as np

from ...comm.calls.reduce_ops import ReduceOp
from ...comm.group.group import ProcessGroup
from ...comm.job import termination
from ..groups.state import group_or_default, is_initialized


def termination_requested(group: ProcessGroup | None = None) -> bool:
    """Was the job asked to end? The same on all ranks of ``group`` (None: the default one), each of
    which calls it at the same place of its program, such as after a step: what they save then is of
    one step. One small all_reduce; without a group, what this process was asked.

    From the first call on SIGTERM does not end this process, unless it has a handler for it; with
    ``dtrun --on-term checkpoint`` that is so from the start, and ``--shutdown-timeout`` seconds
    after the signal it is killed.
    """
    termination.listen()
    return bool(agreed(group, [termination.requested()])[0])


def agreed(group: ProcessGroup | None, flags: list[bool]) -> list[bool]:
    """Which of ``flags`` any rank has set."""
    if group is None and not is_initialized():
        return flags
    g = group_or_default(group)
    told = np.array(flags, np.int32)
    g.all_reduce(told, ReduceOp.MAX)
    return [bool(flag) for flag in told]
