"""Process groups over shared memory for tests: a segment, forked ranks, a group on each.

    def body(group):
        x = np.ones(3)
        group.all_reduce(x)
        return x

    run_group(2, body)

A rank that fails or dies is announced to the others as a launcher would do it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from disttrain.comm.group.group import ProcessGroup
from disttrain.comm.job.segment import Segment
from disttrain.comm.transports import shm
from support.ranks import Outcome, fork_ranks, values


def group_outcomes(
    n: int, fn: Callable[[ProcessGroup], Any], timeout: float = 20.0, **settings: Any
) -> list[Outcome]:
    """Call ``fn(group)`` on ``n`` forked ranks; every rank's outcome, failed or not."""
    segment = Segment.create(n)

    def body(rank: int) -> Any:
        group = ProcessGroup(shm.connect(segment, rank, n, **settings))
        group.timeout = timeout
        return fn(group)

    try:
        return fork_ranks(n, body, timeout, on_death=segment.publish_failure)
    finally:
        segment.close()


def run_group(
    n: int, fn: Callable[[ProcessGroup], Any], timeout: float = 20.0, **settings: Any
) -> list:
    """Call ``fn(group)`` on ``n`` forked ranks; the results by rank, or the first failure."""
    return values(group_outcomes(n, fn, timeout, **settings))
