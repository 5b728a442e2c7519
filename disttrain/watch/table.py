"""What ``disttrain top`` shows: looks at a running job, turned into rows, turned into text.

``Sampler`` looks; ``rows`` and ``lines`` are pure. Knows no terminal.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from ..comm.job.blackbox import Box
from .processes import STATES, Usage, usage
from .reading import Rank, printable, read_all
from .running import Job
from .waiting import COMPUTES, Standing, standings

_FOLDERS = re.compile(r" at /(?:[^/\s]+/)*([^/\s]+/[^/\s]+:\d+)")  # of a calling line but the last


@dataclass(frozen=True)
class Row:
    """One rank. None: not known (yet)."""

    rank: int
    host: str
    pid: int
    state: str
    step: int
    steps_per_second: float | None
    samples_per_second: float | None
    late_ms: float | None
    waited: float | None  # part of the time that it has waited for others
    cpu: float | None  # processors that it keeps busy
    memory: int
    doing: str
    node: int = 0


@dataclass(frozen=True)
class Look:
    """All ranks at one moment (nanoseconds of the monotonic clock)."""

    at: int
    ranks: list[Rank]
    usages: dict[int, Usage]


def look(box: Box) -> Look:
    """Look at all ranks of a box, and at their processes."""
    ranks = read_all(box)
    usages = {
        r.rank: usage(r.words.pid).unless_begun_after(r.alive_at)
        for r in ranks
        if r.words.pid and not r.words.ended
    }
    return Look(time.monotonic_ns(), ranks, usages)


def rows(host: str, now: Look, before: Look | None, node: int = 0) -> list[Row]:
    """The table of a node's ranks that were looked at ``before``, too."""
    earlier = {} if before is None else {r.rank: r for r in before.ranks}
    seconds = 0.0 if before is None else (now.at - before.at) / 1e9
    found = []
    for r, standing in zip(now.ranks, standings(now.ranks, now.at), strict=True):
        words, old = r.words, earlier.get(r.rank)
        use = now.usages.get(r.rank)
        was = None if before is None else before.usages.get(r.rank)
        known = old is not None and seconds > 0 and not words.ended and old.words.pid == words.pid
        steps = samples = waited = None
        if known and old is not None and before is not None:
            steps = (words.step - old.words.step) / seconds
            if words.samples:
                samples = (words.samples - old.words.samples) / seconds
            part = (words.waited_by(now.at) - old.words.waited_by(before.at)) / 1e9 / seconds
            waited = min(1.0, max(0.0, part))
        found.append(Row(
            r.rank, host, words.pid, _state(standing, use, words.ended), words.step, steps, samples,
            standing.late, waited, None if use is None else use.share_since(was),
            0 if use is None else use.memory, _doing(standing, use), node,
        ))  # fmt: skip
    return found


def of_others(told: Iterable[Mapping[str, Any]], me: int) -> tuple[list[Row], set[int]]:
    """Rows that other nodes than ``me`` tell of their ranks, and the places of these nodes. What is
    no row is left out: it was sent by another process."""
    found, nodes = [], set()
    kinds = {f.name: f.default for f in fields(Row)}
    for each in told:
        place, rows = each.get("node"), each.get("rows")
        if not isinstance(place, int) or place == me or not isinstance(rows, list):
            continue
        nodes.add(place)
        for row in rows:
            if isinstance(row, dict) and row.keys() >= kinds.keys() - {"node"}:
                values = {name: _fit(name, row.get(name)) for name in kinds}
                found.append(Row(**{**values, "node": place}))
    return found, nodes


_WORDS = ("host", "state", "doing")
_WHOLE = ("rank", "pid", "step", "memory", "node")


def _fit(name: str, value: object) -> Any:
    """A value of a row as it is to be shown."""
    if name in _WORDS:
        return printable(str(value))
    number = value if isinstance(value, (int, float)) and math.isfinite(value) else None
    return int(number or 0) if name in _WHOLE else number


def _state(standing: Standing, use: Usage | None, ended: int) -> str:
    if ended:
        return f"exit {ended - 1}"
    if use is not None and use.state in ("T", "t", "Z", "X", "D"):
        return STATES[use.state]
    if use is not None and not use.state:
        return "gone"  # nobody has noted how it ended: its launcher was killed, too
    if standing.state == COMPUTES and use is not None and use.state == "S":
        return "sleeps"  # in no operation of a group: a file, a lock, a subprocess
    return standing.state


def _doing(standing: Standing, use: Usage | None) -> str:
    if use is not None and use.state in ("T", "t"):
        return "does not move: got SIGSTOP, or a debugger holds it"
    return _FOLDERS.sub(r" at \1", standing.text)


SORTS = {
    "r": ("rank", lambda row: row.rank),
    "s": ("step", lambda row: row.step),
    "l": ("lateness", lambda row: -(row.late_ms or 0.0)),
    "w": ("waiting", lambda row: -(row.waited or 0.0)),
    "c": ("CPU", lambda row: -(row.cpu or 0.0)),
    "m": ("memory", lambda row: -row.memory),
}
_HEADS = ("RANK", "HOST", "PID", "STATE", "STEP", "STEP/S", "SAMPLE/S", "LATE", "WAIT%", "CPU%",
          "MEM", "DOING")  # fmt: skip
_LEFT = {"HOST", "STATE", "DOING"}


def lines(all_rows: Sequence[Row], key: str = "r", reverse: bool = False) -> list[str]:
    """The table as text: the heading, then a line for each rank."""
    chosen = sorted(all_rows, key=SORTS[key][1], reverse=reverse)
    cells = [_HEADS, *(_cells(row) for row in chosen)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(_HEADS))]
    out = []
    for row in cells:
        parts = [
            cell.ljust(width) if head in _LEFT else cell.rjust(width)
            for head, cell, width in zip(_HEADS, row, widths, strict=True)
        ]
        out.append("  ".join(parts).rstrip())
    return out


def _cells(row: Row) -> tuple[str, ...]:
    return (
        str(row.rank), row.host, str(row.pid or "-"), row.state, str(row.step),
        _number(row.steps_per_second), _number(row.samples_per_second),
        "-" if row.late_ms is None else milliseconds(row.late_ms),
        _percent(row.waited), _percent(row.cpu), size(row.memory), row.doing,
    )  # fmt: skip


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value * 100:.0f}"


def milliseconds(value: float) -> str:
    if value >= 10_000:
        return f"{value / 1000:.1f}s"
    return f"{value:.0f}ms" if value >= 10 else f"{value:.1f}ms"


def size(nbytes: int) -> str:
    """``213M``, ``1.2G``."""
    if not nbytes:
        return "-"
    mega = nbytes / (1 << 20)
    return f"{mega / 1024:.1f}G" if mega >= 1000 else f"{mega:.0f}M"


def heading(job: Job, host: str, all_rows: Sequence[Row], when: float) -> list[str]:
    """The lines above the table."""
    states: dict[str, int] = {}
    for row in all_rows:
        states[row.state] = states.get(row.state, 0) + 1
    counts = ", ".join(f"{state} {n}" for state, n in states.items())
    here = {row.rank for row in all_rows}
    left = job.world_size - len(here)
    where = f", node {job.node} of {job.num_nodes}"
    if left > 0:
        where += f": {left} ranks of other nodes have not told anything yet"
    rate = sum(row.samples_per_second or 0.0 for row in all_rows)
    steps = [row.steps_per_second for row in all_rows if row.steps_per_second is not None]
    speed = [f"{min(steps):.2f} steps/s"] if steps else []
    speed += [f"{rate:,.0f} samples/s"] if rate else []
    return [
        f"job {job.job}: {job.program} on {host}{where if job.num_nodes > 1 else ''}",
        f"{time.strftime('%H:%M:%S', time.localtime(when))} up {clock(when - job.since)}, "
        f"generation {job.generation}, {len(all_rows)} ranks of {job.world_size}: {counts}"
        + (f"; {', '.join(speed)}" if speed else ""),
    ]


def clock(seconds: float) -> str:
    whole = max(0, int(seconds))
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def as_data(job: Job, all_rows: Sequence[Row]) -> dict[str, Any]:
    """The same for programs."""
    return {"job": asdict(job), "ranks": [asdict(row) for row in all_rows]}
