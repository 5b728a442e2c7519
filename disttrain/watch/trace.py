"""The operations of all ranks of a host as a Chrome trace, written while the job runs.

``chrome://tracing`` and Perfetto show it: a process for each rank, its operations as bars, its
steps as marks. A file that was cut (everybody was killed) is as good: they and ``events`` read it.

It must not fill a disk. The first ``WHOLE`` bytes have everything; then only every tenth second is
kept, and a tenth of that after each further ``MORE`` bytes: the whole run stays in sight.

Knows operations (``reading``); no ranks that run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

from .reading import Operation

WHOLE, MORE = 32 << 20, 16 << 20  # bytes
_SECOND = 10**9
_LANES = 16  # operations of one rank at once that get a row of their own


class Trace:
    """Writes one file. ``origin``: the moment that is time 0 there (nanoseconds, the host's clock).
    An ``OSError`` of the disk ends it: ``problem`` says so, and nothing more is written."""

    def __init__(self, path: str, ranks: Sequence[int], host: str, origin: int) -> None:
        self.path, self.problem = path, ""
        self._origin, self._every, self._limit, self._size = origin, 1, WHOLE, 0
        self._ends: dict[int, list[int]] = {rank: [] for rank in ranks}  # of each row
        self._steps: dict[int, int] = {}
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(path, flags, 0o600)
        names = [
            {"name": "process_name", "ph": "M", "pid": r, "args": {"name": f"rank {r} on {host}"}}
            for r in ranks
        ]
        order = [
            {"name": "process_sort_index", "ph": "M", "pid": r, "args": {"sort_index": r}}
            for r in ranks
        ]
        self._write("[\n" + ",\n".join(json.dumps(event) for event in [*names, *order]))

    def keeps(self, now: int) -> bool:
        """Is what happens now to be kept?"""
        return self._fd >= 0 and (now - self._origin) // _SECOND % self._every == 0

    def add(self, rank: int, operations: Sequence[Operation], lost: int = 0) -> None:
        """Operations of ``rank`` that have ended. ``lost``: there were so many more."""
        lines = [self._event(rank, op) for op in operations]
        if lost and operations:
            name = f"{lost} operations were too many to be kept"
            lines.append(self._mark(rank, name, operations[0].begun))
        if lines:
            self._write("".join(",\n" + json.dumps(line) for line in lines))

    def step(self, rank: int, step: int, ended: int) -> None:
        """``rank`` has made ``step`` steps, the last one until ``ended``."""
        if step and self._steps.get(rank) != step:
            self._steps[rank] = step
            self._write(",\n" + json.dumps(self._mark(rank, f"step {step}", ended)))

    def close(self) -> None:
        """End the file."""
        self._write("\n]\n")
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _mark(self, rank: int, name: str, moment: int) -> dict[str, Any]:
        return {"name": name, "ph": "i", "s": "p", "pid": rank, "tid": 0, "ts": self._at(moment)}

    def _event(self, rank: int, op: Operation) -> dict[str, Any]:
        end = abs(op.ended) or op.begun
        return {
            "name": op.verb, "cat": op.group, "ph": "X", "pid": rank, "tid": self._row(rank, op),
            "ts": self._at(op.begun), "dur": (end - op.begun) / 1e3,
            "args": {"seq": op.seq, "call": op.shown, "numel": op.numel, "dtype": op.dtype,
                     "state": op.state},
        }  # fmt: skip

    def _row(self, rank: int, op: Operation) -> int:
        """Operations that are under way at once lie in rows of their own."""
        ends = self._ends[rank]
        free = (row for row, end in enumerate(ends) if end <= op.begun)
        row = next(free, min(len(ends), _LANES - 1))
        if row == len(ends):
            ends.append(0)
        ends[row] = max(abs(op.ended), op.begun)
        return row

    def _at(self, moment: int) -> float:
        return (moment - self._origin) / 1e3

    def _write(self, text: str) -> None:
        view = memoryview(text.encode())
        self._size += len(view)
        try:
            while view and self._fd >= 0:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            self.problem = f"{self.path}: {error.strerror}; the trace ends here"
            os.close(self._fd)
            self._fd = -1
        while self._size > self._limit:
            self._every, self._limit = self._every * 10, self._limit + MORE


def events(path: str) -> Iterator[dict[str, Any]]:
    """The events of a trace, also of one whose end is missing."""
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                event = json.loads(line.strip().rstrip(","))
            except ValueError:  # brackets; a line that was cut
                continue
            if isinstance(event, dict):
                yield event
