"""A black box told to people: what each rank did last, who waited for whom.

Pure but for ``find``. ``summary`` is for the headline of a failure, ``report`` for who reads the
box of a dead job.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence

from ..comm.job.blackbox import Box, clipped
from ..errors import ConfigError
from .reading import UNDER_WAY, Operation, Rank, printable, read_all
from .waiting import WAITS, Standing, standings

NAME = "blackbox"  # the file in the folder of an attempt
_STANDINGS = 16  # ranks of whose standing people are told
_LONGEST = 1000  # bytes of a command line that are told


def command(words: Sequence[str]) -> str:
    """A command line on one line, without what would move a terminal's cursor; long ones are cut in
    their middle."""
    told = os.fsencode(" ".join(words)).decode("utf-8", "backslashreplace")
    return clipped(printable(told), _LONGEST).decode("utf-8", "ignore")


def latest(ranks: Sequence[Rank]) -> int:
    """The last moment of which the box tells."""
    return max((max(r.alive_at, r.words.ended_at) for r in ranks), default=0)


def duration(nanoseconds: int) -> str:
    """``12 us``, ``3.4 ms``, ``1.20 s``."""
    micro = nanoseconds / 1e3
    if micro < 1000:
        return f"{micro:.0f} us"
    return f"{micro / 1e3:.1f} ms" if micro < 1e6 else f"{micro / 1e6:.2f} s"


def line(op: Operation, origin: int) -> str:
    """One operation in one line, its beginning told from ``origin`` on."""
    took = op.state if not op.ended else duration(abs(op.ended) - op.begun)
    if op.ended and op.state != "ended":
        took += f", {op.state}"
    number = f"#{op.seq}" if op.seq else ""
    return (
        f"{(op.begun - origin) / 1e9:+10.4f} s  {took:>10}  {op.group:<8} {number:>7}  {op.shown}"
    )


def summary(r: Rank, at: int, count: int = 2) -> list[str]:
    """What a rank did last before ``at``, newest last, in few lines."""
    kept = [op for op in r.operations if op.state == UNDER_WAY] or r.operations[-1:]
    before = [op for op in r.operations if op not in kept]
    chosen = sorted([*before[-(count - 1) :], *kept[-count:]], key=lambda op: op.number)[-count:]
    out = []
    for op in chosen:
        begun = f"begun {duration(max(0, at - op.begun))} before"
        state = f"took {duration(op.ended - op.begun)}" if op.ended > 0 else op.state
        out.append(f"{op.shown} ({begun}, {state})")
    return out


def stands(ranks: Sequence[Rank], now: int) -> list[str]:
    """Where each rank is at ``now``: what it is in or did last, which operation of which group that
    is, and from which line. Of many ranks those who wait for nobody come first, and few others."""
    told = sorted(standings(ranks, now), key=lambda each: each.state == WAITS)
    steps = {r.rank: r.words.step for r in ranks}
    shown = sorted(told[:_STANDINGS], key=lambda each: each.rank)
    out = []
    for each in shown:
        step = f", step {steps[each.rank]}" if steps[each.rank] else ""
        op = each.operation
        which = f" (operation {op.seq} of group {op.group})" if op is not None and op.seq else ""
        out.append(f"rank {each.rank}{step}: {each.text}{which}")
    left = len(told) - len(shown)
    return [*out, f"{left} more wait"] if left else out


def report(box: Box, count: int, only: Sequence[int] | None = None) -> list[str]:
    """The whole box, rank by rank. ``only``: these ranks."""
    ranks = read_all(box, count)
    origin, about = latest(ranks), box.about
    wall = (box.wall + origin - box.monotonic) / 1e9
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(wall))
    out = [
        f"job {about.get('job', '?')}: {about.get('program', '?')}, generation "
        f"{about.get('generation', '?')}, on "
        f"{about.get('host', '?')}",
        f"its last sign of life is of {when}{f'{wall % 1:.6f}'[1:]}; times count from there",
    ]
    for r, standing in zip(ranks, standings(ranks, origin), strict=True):
        if only is None or r.rank in only:
            out += ["", *_of_rank(r, standing, origin)]
    return out


def _of_rank(r: Rank, standing: Standing, origin: int) -> list[str]:
    words = r.words
    if not words.pid:
        return [f"rank {r.rank}: has not begun"]
    state = f"ended with exit code {words.ended - 1}" if words.ended else standing.text
    head = f"rank {r.rank} (pid {words.pid}), step {words.step}: {state}"
    times = f"  last sign of life {(r.alive_at - origin) / 1e9:+.4f} s; " \
            f"has waited {words.waited / 1e9:.2f} s for others"  # fmt: skip
    out = [head, times]
    if r.said:
        out.append(f"  {r.said}")
    return out + ["  " + line(op, origin) for op in r.operations]


def find(path: str) -> list[str]:
    """The black boxes at ``path``: a file, or a log directory (of its last attempt on each node).
    Raises ``ConfigError`` where there is none."""
    if os.path.isfile(path):
        return [path]
    if not os.path.isdir(path):
        raise ConfigError(f"{path}: no such file or directory, nor a job of yours that runs here")
    nodes = sorted((d for d in os.listdir(path) if re.fullmatch(r"node_\d+", d)), key=_number)
    found = []
    for folder in [os.path.join(path, node) for node in nodes] or [path]:
        direct = os.path.join(folder, NAME)
        attempts = sorted(
            (d for d in os.listdir(folder) if re.fullmatch(r"attempt_\d+", d)), key=_number
        )
        boxes = [os.path.join(folder, attempt, NAME) for attempt in attempts]
        boxes = [box for box in boxes if os.path.isfile(box)]
        found += [direct] if os.path.isfile(direct) else boxes[-1:]
    if not found:
        raise ConfigError(
            f"{path}: there is no black box in it; dtrun --log-dir DIR keeps one in DIR"
        )
    return found


def _number(name: str) -> int:
    return int(name.rpartition("_")[2])
