"""A barrier that says who is missing, and leaves the group usable: made of messages.

Rank 0 of the group hears from every other rank and answers, with good news or bad. Knows the verbs
of a group.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import context
from ...errors import PeerFailed, WaitTimeout
from ..calls.header import name_ranks

_TAGS_AT = 1 << 31  # above the tags that programs use by habit


def barrier(group: Any, number: int, timeout: float, wait_all: bool) -> None:
    """Wait until all ranks have come, at most ``timeout`` seconds; else ``WaitTimeout`` names who
    has not: the first one, with ``wait_all`` every one. ``number``: how many there were before."""
    if not group.transport.hears:
        return  # nobody will come
    tag = _TAGS_AT + number % _TAGS_AT
    if group.rank == 0:
        _collect(group, tag, timeout, wait_all)
        return
    group.send(np.zeros(1, np.uint8), 0, tag)
    answer = np.zeros(1, np.uint8)
    try:
        group.irecv(answer, 0, tag).wait(timeout)
    except (WaitTimeout, PeerFailed) as error:
        raise _no_answer(group, str(error)) from None
    if not answer[0]:
        raise _no_answer(group, "it says that another rank is missing; its error names it")


def _no_answer(group: Any, why: str) -> WaitTimeout:
    return WaitTimeout(
        f"monitored_barrier: Rank {group.ranks[group.rank]} successfully reached monitoredBarrier, "
        f"but received errors while waiting for send/recv from rank {group.ranks[0]}: {why}"
    )


def _collect(group: Any, tag: int, timeout: float, wait_all: bool) -> None:
    deadline = context.now() + timeout
    heard, missing = [], []
    for rank in range(1, group.size):
        work = group.irecv(np.zeros(1, np.uint8), rank, tag)
        try:
            work.wait(max(0.0, deadline - context.now()))
            heard.append(rank)
        except (WaitTimeout, PeerFailed):
            missing.append(rank)
            if not wait_all:
                break
    for rank in heard:
        group.isend(np.array([not missing], np.uint8), rank, tag)
    if missing:
        names = name_ranks([group.ranks[r] for r in missing]).capitalize()
        late = f"Rank {group.ranks[0]} timed out in monitoredBarrier after {timeout * 1e3:g} ms"
        raise WaitTimeout(
            f"monitored_barrier: {names} failed to pass monitoredBarrier in {timeout * 1e3:g} ms. "
            f"{late}. Find out why they do not come, or raise timeout=."
        )
