"""What an agent tells of what it has under way, as PyTorch names it."""

from __future__ import annotations

import time
from collections.abc import Sequence

_SAMPLES = 20


def counts(threads: int, asked: int, owed: Sequence[int], profiling: bool) -> dict[str, str]:
    """For an agent with so many ``threads``, ``asked`` calls of its own without an answer yet, and
    requests of others that it is handling: the numbers of their answers, 0 where none is owed.
    ``profiling``: measure how long threads wait for the interpreter."""
    told: dict[str, float] = {
        "agent.thread_pool_size": threads,
        "agent.num_idle_threads": max(0, threads - len(owed)),
        "agent.client_active_calls": asked,
        "agent.server_active_calls": len(owed),
        "agent.server_active_async_calls": sum(1 for number in owed if number),
    }
    if profiling:
        told["agent.gil_average_wait_time_us"] = round(_interpreter_wait() * 1e6, 3)
    return {name: str(value) for name, value in told.items()}


def _interpreter_wait() -> float:
    """Seconds from letting the interpreter go to having it again, on average."""
    start = time.perf_counter()
    for _ in range(_SAMPLES):
        time.sleep(0)
    return (time.perf_counter() - start) / _SAMPLES
