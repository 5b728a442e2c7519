"""Which worker process am I? Kept in the slots of the calling rank; None outside of workers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .. import context

_SLOT = "data.worker"


@dataclass(frozen=True)
class WorkerInfo:
    """``id`` counts from 0; ``seed`` is this worker's; ``dataset`` is its copy of the dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Any = field(repr=False)


def get_worker_info() -> WorkerInfo | None:
    """What this worker process is; None in any other process."""
    return context.current().slots.get(_SLOT)


def set_worker_info(info: WorkerInfo) -> None:
    """Make the calling process a worker."""
    context.current().slots[_SLOT] = info
