"""Run a test body in the default group of simulated ranks.

def body():
    return dist.get_rank()

assert on_ranks(body, 3) == [0, 1, 2]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from disttrain import distributed as dist


def on_ranks(body: Callable[[], Any], size: int = 2, seed: int = 0) -> list[Any]:
    """The results of ``body()`` by rank; the first failure is raised."""

    def rank() -> Any:
        dist.init_process_group()
        result = body()
        dist.destroy_process_group()
        return result

    return dist.simulate(rank, size, seed=seed).results
