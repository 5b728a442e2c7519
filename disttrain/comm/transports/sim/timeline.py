"""What every simulated rank did when: kept while it runs, shown as a Chrome trace, summed up.

Times are virtual seconds. A rank computes, waits for others, or waits for data that is on its way;
operations in flight have a row of their own. Pure data; knows no ranks that run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import IO, Any

COMPUTE, WAIT, TRANSFER = "compute", "wait", "communication"
_MOST_SPANS = 2_000_000


@dataclass
class Timeline:
    """``spans[rank]``: (kind, name, start, end) in the order of their ends; ``flights``: of the
    operations that it took part in, ``carried`` their bytes (of a rank) and ranks;
    ``steps[rank]``: when each of its steps ended."""

    num_ranks: int
    spans: list[list[tuple[str, str, float, float]]] = field(init=False)
    flights: list[list[tuple[str, float, float]]] = field(init=False)
    carried: list[list[tuple[int, tuple[int, ...]]]] = field(init=False)
    steps: list[list[float]] = field(init=False)
    totals: list[dict[str, float]] = field(init=False)
    cut: bool = False  # there was more than is kept of single spans
    _kept: int = 0

    def __post_init__(self) -> None:
        n = self.num_ranks
        self.spans = [[] for _ in range(n)]
        self.flights = [[] for _ in range(n)]
        self.carried = [[] for _ in range(n)]
        self.steps = [[] for _ in range(n)]
        self.totals = [dict.fromkeys((COMPUTE, WAIT, TRANSFER), 0.0) for _ in range(n)]

    def _room(self) -> bool:
        self._kept += 1
        self.cut = self.cut or self._kept > _MOST_SPANS
        return not self.cut

    def computed(self, rank: int, start: float, end: float) -> None:
        self._add(rank, COMPUTE, "compute", start, end)

    def waited(self, rank: int, name: str, start: float, end: float, moving: float) -> None:
        """``rank`` has waited for ``name``, whose data was on its way from ``moving`` on."""
        middle = min(max(start, moving), end)
        self._add(rank, WAIT, name, start, middle)
        self._add(rank, TRANSFER, name, middle, end)

    def _add(self, rank: int, kind: str, name: str, start: float, end: float) -> None:
        if end > start:
            self.totals[rank][kind] += end - start
            if self._room():
                self.spans[rank].append((kind, name, start, end))

    def flew(
        self, ranks: Sequence[int], name: str, start: float, end: float, nbytes: int = 0
    ) -> None:
        """``nbytes`` of ``name`` were on their way between ``ranks`` (from the first one to the
        second, if it was a message)."""
        if end > start:
            everyone = tuple(ranks)
            for rank in everyone:
                if self._room():
                    self.flights[rank].append((name, start, end))
                    self.carried[rank].append((nbytes, everyone))

    def stepped(self, rank: int, at: float) -> None:
        """A step of ``rank`` has ended. What it did until the end of the first one (loading,
        preparing) is left out of the totals."""
        if not self.steps[rank]:
            self.totals[rank] = dict.fromkeys(self.totals[rank], 0.0)
        self.steps[rank].append(at)


def step_seconds(steps: Sequence[Sequence[float]]) -> float | None:
    """The predicted time of a step: the median over all but the first one (which warms up), each
    as long as it took the slowest rank. None where no rank has made two."""
    count = min((len(ends) for ends in steps), default=0)
    ends = [max(each[i] for each in steps) for i in range(count)]
    lengths = [later - earlier for earlier, later in pairwise(ends)]
    return median(lengths) if lengths else None


def shares(totals: dict[str, float]) -> dict[str, float]:
    """The share of each kind in what a rank did."""
    whole = sum(totals.values())
    return {kind: (value / whole if whole else 0.0) for kind, value in totals.items()}


def summary(timeline: Timeline, most: int = 8) -> list[str]:
    """The run for people: the step, then how ranks spent their time (the ones that waited least,
    whom the others waited for, first)."""
    lines = []
    step = step_seconds(timeline.steps)
    if step is not None:
        count = min(len(ends) for ends in timeline.steps)
        lines.append(f"predicted step time: {shown(step)} (median of {count - 1} steps)")
    parts = [shares(totals) for totals in timeline.totals]
    order = sorted(range(timeline.num_ranks), key=lambda r: (parts[r][WAIT], r))
    chosen = order if len(order) <= most else [*order[: most // 2], *order[-(most // 2) :]]
    lines.append("rank   computes   communicates   waits")
    for place, rank in enumerate(chosen):
        if len(order) > most and place == most // 2:
            lines.append(f"  ... {len(order) - most} ranks between these")
        part = parts[rank]
        lines.append(f"{rank:>4} {part[COMPUTE]:>9.1%} {part[TRANSFER]:>13.1%} {part[WAIT]:>8.1%}")
    return lines


def shown(seconds: float) -> str:
    """A time for people."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def events(timeline: Timeline, hosts: Sequence[int]) -> list[dict[str, Any]]:
    """The trace in Chrome's format: a process per rank, rows for its program and its operations."""
    found: list[dict[str, Any]] = []
    for rank in range(timeline.num_ranks):
        name = {"name": f"rank {rank} (host {hosts[rank]})"}
        found.append({"ph": "M", "name": "process_name", "pid": rank, "tid": 0, "args": name})
        found.append({"ph": "M", "name": "process_sort_index", "pid": rank, "tid": 0,
                      "args": {"sort_index": rank}})  # fmt: skip
        for row, title in enumerate(("program", "in flight")):
            found.append({"ph": "M", "name": "thread_name", "pid": rank, "tid": row,
                          "args": {"name": title}})  # fmt: skip
        for kind, what, start, end in timeline.spans[rank]:
            found.append(_span(what, kind, rank, 0, start, end))
        for what, start, end in timeline.flights[rank]:
            found.append(_span(what, TRANSFER, rank, 1, start, end))
        for at in timeline.steps[rank]:
            found.append({"ph": "i", "s": "p", "name": "step", "pid": rank, "tid": 0,
                          "ts": at * 1e6})  # fmt: skip
    return found


def _span(name: str, kind: str, rank: int, row: int, start: float, end: float) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "cat": kind,
        "pid": rank,
        "tid": row,
        "ts": start * 1e6,
        "dur": (end - start) * 1e6,
    }


def write(file: IO[str], timeline: Timeline, hosts: Sequence[int]) -> None:
    """Write the trace as JSON (chrome://tracing, ui.perfetto.dev)."""
    json.dump({"traceEvents": events(timeline, hosts), "displayTimeUnit": "ms"}, file)
