"""``torch.distributed.elastic.events``: what happens to a job, as records for a logger."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass, field
from enum import StrEnum

EventMetadataValue = str | int | float | bool | None
_LOGGER = "torchelastic.events"


class EventSource(StrEnum):
    AGENT = "AGENT"
    WORKER = "WORKER"


class NodeState(StrEnum):
    INIT = "INIT"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


@dataclass
class Event:
    """One thing that has happened."""

    name: str
    source: EventSource
    timestamp: int = 0
    metadata: dict[str, EventMetadataValue] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.serialize()

    def serialize(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def deserialize(data: str | Event) -> Event:
        if isinstance(data, Event):
            return data
        told = json.loads(data)
        return Event(**{**told, "source": EventSource(told["source"])})


def record(event: Event, destination: str = "null") -> None:
    """Log ``event`` for ``destination``: a logger's name after ``torchelastic.events.``.
    ``console`` writes to stderr; ``null`` nowhere, unless the logger has a handler."""
    logger = logging.getLogger(f"{_LOGGER}.{destination}")
    if not logger.handlers:
        logger.addHandler(
            logging.StreamHandler() if destination == "console" else logging.NullHandler()
        )
        logger.setLevel(logging.INFO)
        logger.propagate = False
    logger.info(event.serialize())
