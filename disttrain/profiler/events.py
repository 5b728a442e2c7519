"""What was seen, as data: events, and events added up by name. Knows no tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

OPERATION, COLLECTIVE, ANNOTATION, CALL = "cpu_op", "collective", "user_annotation", "call"


@dataclass(eq=False)
class Event:
    """One operation. Times are in microseconds; ``start`` counts from the block's begin.

    ``is_async``: it was started and ended elsewhere than where the program stood meanwhile, as
    collectives may. ``input_shapes`` are empty unless they were asked for. ``cpu_memory_usage``:
    bytes that it took, less those given back, with ``profile_memory``; ``flops`` with
    ``with_flops``; ``stack``: lines of the program, the innermost first, with ``with_stack``.
    ``sequence_nr`` of an operation of forward is that of the node that backward runs for it;
    ``forward_nr`` of one of backward is that of the node that ran.
    """

    name: str
    start: float
    cpu_time: float
    is_async: bool = False
    input_shapes: list[Any] = field(default_factory=list)
    thread: int = 0
    count: int = 1
    kind: str = OPERATION
    cpu_memory_usage: int = 0
    flops: int = 0
    stack: list[str] = field(default_factory=list)
    sequence_nr: int = -1
    forward_nr: int = -1
    details: dict[str, Any] = field(default_factory=dict)
    cpu_children: list[Event] = field(default_factory=list, repr=False)
    cpu_parent: Event | None = field(default=None, repr=False)
    self_time: float = 0.0  # of averages: added up
    self_memory: int = 0

    @property
    def key(self) -> str:
        return self.name

    @property
    def end(self) -> float:
        return self.start + self.cpu_time

    @property
    def cpu_time_total(self) -> float:
        return self.cpu_time * self.count

    @property
    def self_cpu_time_total(self) -> float:
        """Without what ran inside of it."""
        if self.count > 1 or self.self_time:
            return self.self_time
        return max(self.cpu_time - sum(c.cpu_time for c in self.cpu_children), 0.0)

    @property
    def self_cpu_memory_usage(self) -> int:
        """Without what ran inside of it took."""
        if self.count > 1 or self.self_memory:
            return self.self_memory
        return self.cpu_memory_usage - sum(c.cpu_memory_usage for c in self.cpu_children)

    device_time = device_time_total = cuda_time = cuda_time_total = 0.0
    self_device_time_total = self_cuda_time_total = 0.0
    device_memory_usage = self_device_memory_usage = 0


class Averages(list):
    """Events added up by name. ``cpu_time`` of each is the mean."""

    def table(
        self, sort_by: str | None = "cpu_time_total", row_limit: int = 100,
        max_src_column_width: int = 75, max_name_column_width: int = 55,
        max_shapes_column_width: int = 80, header: str | None = None,
        top_level_events_only: bool = False,
    ) -> str:  # fmt: skip
        """The rows as text, the longest first. Memory and operations (flops) are told where they
        were recorded."""
        rows = [e for e in self if not (top_level_events_only and e.cpu_parent is not None)]
        if sort_by:
            rows.sort(key=lambda e: -getattr(e, sort_by))
        columns = [
            ("CPU total", 12, lambda e: f"{e.cpu_time_total:.1f}us"),
            ("CPU mean", 12, lambda e: f"{e.cpu_time:.2f}us"),
            ("Calls", 8, lambda e: str(e.count)),
        ]
        if any(e.cpu_memory_usage for e in rows):
            columns.insert(2, ("CPU Mem", 12, lambda e: _bytes(e.cpu_memory_usage)))
        if any(e.flops for e in rows):
            columns.append(("Total FLOPs", 12, lambda e: str(e.flops or "--")))
        if any(e.input_shapes for e in rows):
            cut = max_shapes_column_width
            columns.append(("Input Shapes", 14, lambda e: _cut(str(e.input_shapes), cut)))
        names = [_cut(e.name, max_name_column_width) for e in rows[:row_limit]]
        width = max([len(n) for n in names] + [4])
        head = "  ".join(f"{title:>{wide}}" for title, wide, _ in columns)
        lines = [] if header is None else [header]
        lines.append(f"{'Name':<{width}}  {head}")
        for name, e in zip(names, rows[:row_limit], strict=True):
            cells = "  ".join(f"{show(e):>{wide}}" for _, wide, show in columns)
            lines.append(f"{name:<{width}}  {cells}")
        return "\n".join(lines)

    def total_average(self) -> Event:
        """All of them as one."""
        total = Event("Total", 0.0, 0.0, count=max(sum(e.count for e in self), 1))
        total.self_time = sum(e.self_cpu_time_total for e in self)
        total.cpu_time = total.self_time / total.count
        return total

    @property
    def self_cpu_time_total(self) -> float:
        return sum(e.self_cpu_time_total for e in self)


def _cut(text: str, width: int | None) -> str:
    return text if width is None or len(text) <= width else text[: width - 3] + "..."


def _bytes(count: int) -> str:
    for size, unit in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
        if abs(count) >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} B"


def nest(events: Sequence[Event]) -> None:
    """Say of each event, which one of its thread it ran inside of."""
    open_: list[Event] = []
    for e in events:
        e.cpu_children, e.cpu_parent = [], None
    for e in sorted(events, key=lambda e: (e.thread, e.start, -e.cpu_time)):
        if e.is_async:
            continue
        while open_ and (open_[-1].thread != e.thread or open_[-1].end < e.end):
            open_.pop()
        if open_:
            e.cpu_parent = open_[-1]
            open_[-1].cpu_children.append(e)
        open_.append(e)


def averages(events: Sequence[Event], by_shape: bool = False, by_stack: int = 0) -> Averages:
    """``events`` added up by name (and by shapes, and by the first lines of their stacks)."""
    nest(events)
    found: dict[tuple, list[Event]] = {}
    for e in events:
        key = e.name, str(e.input_shapes) if by_shape else "", *e.stack[:by_stack]
        found.setdefault(key, []).append(e)
    rows = Averages()
    for same in found.values():
        first = same[0]
        row = Event(
            first.name, first.start, sum(e.cpu_time for e in same) / len(same), first.is_async,
            first.input_shapes if by_shape else [], 0, len(same), first.kind,
            sum(e.cpu_memory_usage for e in same), sum(e.flops for e in same),
            first.stack[:by_stack],
        )  # fmt: skip
        row.self_time = sum(e.self_cpu_time_total for e in same)
        row.self_memory = sum(e.self_cpu_memory_usage for e in same)
        row.cpu_parent = first.cpu_parent if all(e.cpu_parent for e in same) else None
        rows.append(row)
    return rows
