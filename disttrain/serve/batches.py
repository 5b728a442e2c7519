"""Which waiting requests run together, and when. Pure: it is told what time it is.

Requests of one model whose inputs differ in nothing but the number of rows can be joined; nothing
is ever padded. A batch starts when it is full, when its first request has waited for the delay, or
when nobody is there who could still send one to join it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from typing import Protocol


class Waiting(Protocol):
    """A request that waits. ``group``: those of one can be joined; ``limit``: rows of a batch (0:
    it runs alone); ``size``: bytes; times in seconds on one clock."""

    group: Hashable
    rows: int
    limit: int
    size: int
    arrived: float
    deadline: float
    cancelled: bool


class Queue:
    """Requests by group, each group in order of arrival."""

    def __init__(self, delay: float, most_bytes: int) -> None:
        self.delay, self.most_bytes = delay, most_bytes
        self._groups: dict[Hashable, deque] = {}
        self._rows: dict[Hashable, int] = {}
        self.length = 0
        self._earliest = float("inf")  # no deadline is before it

    def add(self, request: Waiting) -> None:
        """Let it wait."""
        self._groups.setdefault(request.group, deque()).append(request)
        self._rows[request.group] = self._rows.get(request.group, 0) + request.rows
        self.length += 1
        self._earliest = min(self._earliest, request.deadline)

    def take(self, now: float, hurry: bool) -> list:
        """The next batch, or nothing as long as there is reason to wait. ``hurry``: nobody could
        still send a request."""
        ready = [group for group in self._groups if hurry or self._is_ready(group, now)]
        if not ready:
            return []
        return self._take(min(ready, key=lambda group: self._groups[group][0].arrived))

    def due(self) -> float:
        """When a batch is to be started at the latest."""
        heads = (self._groups[g][0] for g in self._groups)
        return min((h.arrived + (self.delay if h.limit else 0.0) for h in heads), default=0.0)

    def expired(self, now: float) -> list:
        """Take out those whose deadline has passed, and those that nobody waits for any more."""
        if now < self._earliest:
            return []
        gone = [r for r in self._all() if r.deadline <= now or r.cancelled]
        for request in gone:
            self._remove(request)
        self._earliest = min((r.deadline for r in self._all()), default=float("inf"))
        return gone

    def drop(self) -> list:
        """Take out all."""
        found = list(self._all())
        self._groups.clear()
        self._rows.clear()
        self.length = 0
        return found

    def _all(self) -> Iterator:
        for group in self._groups.values():
            yield from group

    def _is_ready(self, group: Hashable, now: float) -> bool:
        head = self._groups[group][0]
        return not head.limit or self._rows[group] >= head.limit or now >= head.arrived + self.delay

    def _take(self, group: Hashable) -> list:
        waiting = self._groups[group]
        batch: list = []
        rows = size = 0
        while waiting and (not batch or self._fits(waiting[0], rows, size)):
            request = waiting.popleft()
            batch.append(request)
            rows += request.rows
            size += request.size
        self.length -= len(batch)
        self._settle(group, rows)
        return batch

    def _fits(self, request: Waiting, rows: int, size: int) -> bool:
        return rows + request.rows <= request.limit and size + request.size <= self.most_bytes

    def _remove(self, request: Waiting) -> None:
        self._groups[request.group].remove(request)
        self.length -= 1
        self._settle(request.group, request.rows)

    def _settle(self, group: Hashable, rows: int) -> None:
        self._rows[group] -= rows
        if not self._groups[group]:
            del self._groups[group], self._rows[group]
