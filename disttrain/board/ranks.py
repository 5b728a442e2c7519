"""What the ranks of a run do, or did last: from its black boxes, for the page.

``Watcher`` keeps the last look at each box, since rates need two.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from ..comm.job.blackbox import Box
from ..errors import CommError
from ..watch import summary, table
from ..watch.reading import UNDER_WAY, opened, read_all
from .runs import Run

_SPANS = 120  # operations of each rank in the timeline
_MOST_SPANS = 6000  # of all ranks
_MOST_BOXES = 64


class Watcher:
    """Of one run. Not for threads at the same time."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[int, table.Look]] = {}  # path -> (inode's time, look)

    def look(self, run: Run) -> dict[str, Any]:
        """The ranks of all nodes, and the timeline of what they did last."""
        rows: list[dict[str, Any]] = []
        spans: list[dict[str, Any]] = []
        live = False
        for path in run.boxes[:_MOST_BOXES]:
            try:
                box = opened(path)
            except (OSError, CommError):
                continue  # being made, or of another version
            try:
                found, running = self._rows(path, box)
                rows += found
                live = live or running
                spans += _spans(box, running)
            finally:
                box.close()
        return {"ranks": rows, "spans": spans[:_MOST_SPANS], "live": live}

    def _rows(self, path: str, box: Box) -> tuple[list[dict[str, Any]], bool]:
        about = box.about
        now = table.look(box)
        begun, before = self._before.get(path, (0, None))
        if begun != box.monotonic:
            before = None  # another attempt
        running = any(use.state for use in now.usages.values())
        if before is None or now.at - before.at > 500_000_000:
            self._before[path] = (box.monotonic, now)
        rows = table.rows(str(about.get("host", "")), now, before)
        return [asdict(row) for row in rows], running


def _spans(box: Box, running: bool) -> list[dict[str, Any]]:
    """Operations with their times in milliseconds of the wall clock."""
    ranks = read_all(box, _SPANS)
    end = time.monotonic_ns() if running else summary.latest(ranks)
    shift = box.wall - box.monotonic
    found = []
    for rank in ranks:
        for op in rank.operations:
            until = abs(op.ended) if op.ended else end if op.state == UNDER_WAY else op.begun
            found.append({
                "rank": rank.rank, "begun": (op.begun + shift) / 1e6,
                "ms": max(0, until - op.begun) / 1e6, "verb": op.verb, "group": op.group,
                "text": op.shown, "state": op.state,
            })  # fmt: skip
    return found
