"""What a worker tells about itself."""

from __future__ import annotations

import time
from typing import Any

from .settings import Settings
from .workers import WorkerInfo, Workers

_SAMPLES = 20


class Report:
    """The part of an agent that answers questions. Names are PyTorch's."""

    me: WorkerInfo
    workers: Workers
    settings: Settings
    slots: dict[str, Any]
    in_flight: dict[int, Any]
    handling: set

    def get_worker_info(self, worker: Any = None) -> WorkerInfo:
        """The worker of that name or number (None: this one)."""
        return self.me if worker is None else self.workers.find(worker)

    def get_worker_infos(self) -> list[WorkerInfo]:
        """All workers that this one knows, itself too, by their numbers."""
        return [self.workers.by_id[number] for number in sorted(self.workers.by_id)]

    def enable_gil_profiling(self, flag: bool) -> None:
        """Whether ``get_debug_info`` measures how long threads wait for the interpreter."""
        self.slots["gil_profiling"] = bool(flag)

    def get_debug_info(self) -> dict[str, str]:
        """Counts of what this worker has under way, as text."""
        told: dict[str, Any] = {
            "agent.thread_pool_size": self.settings.threads,
            "agent.num_idle_threads": max(0, self.settings.threads - len(self.handling)),
            "agent.client_active_calls": len(self.in_flight),
            "agent.server_active_calls": len(self.handling),
            "agent.server_active_async_calls": sum(1 for r in list(self.handling) if r.number),
        }
        if self.slots.get("gil_profiling"):
            told["agent.gil_average_wait_time_us"] = round(_interpreter_wait() * 1e6, 3)
        return {name: str(value) for name, value in told.items()}


def _interpreter_wait() -> float:
    """Seconds from letting the interpreter go to having it again, on average."""
    start = time.perf_counter()
    for _ in range(_SAMPLES):
        time.sleep(0)
    return (time.perf_counter() - start) / _SAMPLES
