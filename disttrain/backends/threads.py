"""How many threads this process computes with, and work spread over them.

    count(), set_count(n)      as many as the BLAS of this process takes: one under a launcher that
                               starts several ranks on a machine, else what the machine has
    tell(listener)             call it with the count, now and whenever that is set
    spread(jobs)               run them all, each once; back when all are done

Jobs write to memory of their own and do not spread work themselves. What they compute may not
depend on how many they are.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

from . import blas, host

_listeners: list[Callable[[int], None]] = []


def count() -> int:
    """Threads that large work takes."""
    return blas.num_threads() or 1


def set_count(n: int) -> bool:
    """Let large work take ``n`` from now on, in this process. Returns whether the BLAS could be
    told; nothing changes otherwise."""
    told = blas.set_num_threads(n)
    for listener in _listeners if told else ():
        listener(n)
    return told


def tell(listener: Callable[[int], None]) -> None:
    """Call ``listener(count)`` now and whenever the count is set, as long as the process lives."""
    _listeners.append(listener)
    listener(count())


@cache
def _pool(process: int) -> Any:
    """The threads of a process: a forked child has none of its parent's. Loaded when first asked
    for: few ranks ever do."""
    executors = importlib.import_module("concurrent.futures.thread")
    return executors.ThreadPoolExecutor(host.cores(), thread_name_prefix=f"disttrain-{process}")


def spread(jobs: Sequence[Callable[[], object]]) -> None:
    """Run every job; the first on this thread. An error of one is raised after all have ended."""
    if len(jobs) == 1:
        jobs[0]()
        return
    others = [_pool(os.getpid()).submit(job) for job in jobs[1:]]
    try:
        for job in jobs[:1]:
            job()
    finally:
        errors = [other.exception() for other in others]
    for error in errors:
        if error is not None:
            raise error


def portions(n: int, least: int = 1, parts: int | None = None) -> list[slice]:
    """``n`` things as slices, one a thread (or ``parts``), each of ``least`` or more if there are
    so many."""
    parts = max(1, min(count() if parts is None else parts, n // least))
    ends = [n * k // parts for k in range(parts + 1)]
    return [slice(a, b) for a, b in pairwise(ends)]


__all__ = ["count", "portions", "set_count", "spread", "tell"]
