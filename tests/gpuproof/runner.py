"""Starts the processes that the schedule wants, ends those that take too long, and reads what they
wrote. A part that crashes goes on in a fresh process after the case that broke it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .journal import Told, read
from .parts import Part
from .schedule import Schedule, Start

TAIL = 30  # lines of what a process that broke said


@dataclass
class Outcome:
    """What came of a part."""

    part: Part
    told: Told = field(default_factory=Told)
    seconds: float = 0.0
    broken: list[str] = field(default_factory=list)  # processes that crashed or were ended
    tails: list[str] = field(default_factory=list)
    left_out: bool = False

    @property
    def state(self) -> str:
        if self.left_out:
            return "no time"
        if self.told.failures or self.broken:
            return "FAILED"
        return "held" if self.told.checks or self.told.numbers else "not run"


@dataclass
class _Process:
    start: Start
    process: subprocess.Popen[bytes]
    journal: Path
    output: Path
    began: float
    heard: float  # when its journal last grew
    size: int = 0

    def late(self, now: float) -> str:
        """Which limit it has gone beyond; "" for none."""
        size = self.journal.stat().st_size if self.journal.exists() else 0
        if size != self.size:
            self.size, self.heard = size, now
        if now - self.began > self.start.seconds:
            return f"was ended after its limit of {self.start.seconds:.0f} s"
        if now - self.heard > self.start.part.patience:
            return f"was ended after {self.start.part.patience:.0f} s of silence"
        return ""


def run(
    parts: Sequence[Part],
    platform: str,
    folder: Path,
    budget: float,
    width: int,
    say: Callable[[str], None] = print,
    module: str = "gpuproof.run",
) -> list[Outcome]:
    """Run them all; their outcomes in the order of ``parts``. Files go to ``folder``."""
    schedule = Schedule(parts, width, budget)
    outcomes = {part.name: Outcome(part) for part in parts}
    begun: dict[tuple[str, int], list[str]] = {}
    alive: list[_Process] = []
    beginning = time.monotonic()
    while not schedule.over:
        while (start := schedule.next(time.monotonic() - beginning)) is not None:
            alive.append(_start(start, platform, folder, module))
        for one in list(alive):
            late = one.late(time.monotonic())
            if one.process.poll() is None and not late:
                continue
            took = time.monotonic() - one.began
            _end(one.process)
            alive.remove(one)
            _account(one, took, late, outcomes[one.start.part.name], begun, schedule, say)
        time.sleep(0.02)
    for start in schedule.left_out:
        outcomes[start.part.name].left_out = True
    return list(outcomes.values())


def _start(start: Start, platform: str, folder: Path, module: str) -> _Process:
    stem = f"{start.part.name}.{start.shard}.{len(start.after)}"
    journal, output = folder / f"{stem}.jsonl", folder / f"{stem}.txt"
    journal.unlink(missing_ok=True)
    words = [start.part.name, str(journal), platform, str(start.shard), str(start.part.shards)]
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *words, *start.after],
            stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
    now = time.monotonic()
    return _Process(start, process, journal, output, now, now)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and what it has started: they are one session."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    process.wait()


def _account(
    one: _Process,
    took: float,
    late: str,
    outcome: Outcome,
    begun: dict[tuple[str, int], list[str]],
    schedule: Schedule,
    say: Callable[[str], None],
) -> None:
    """Take what a process wrote, and let another one go on where it broke."""
    told, start = read(one.journal), one.start
    key = start.part.name, start.shard
    names = [c["name"] for c in (*told.checks, *told.skips)]
    running = [told.running] if told.running else []
    begun.setdefault(key, []).extend([*names, *running])
    outcome.seconds = max(outcome.seconds, took)
    for mine, new in (
        (outcome.told.checks, told.checks),
        (outcome.told.skips, told.skips),
        (outcome.told.numbers, told.numbers),
        (outcome.told.notes, told.notes),
    ):
        mine.extend(new)  # type: ignore[attr-defined]
    code = one.process.returncode
    if not told.ended:
        how = late or _code_text(code)
        where = f" in {told.running}" if told.running else ""
        if code != 75 or late:
            outcome.broken.append(f"{how}{where}")
            outcome.tails.append(_tail(one.output))
        if told.running:
            said = {"name": told.running, "ok": False, "detail": f"the process {how}"}
            outcome.told.checks.append(said)
    again = schedule.ended(start, took, begun[key], told.ended)
    held, bad = len(told.checks) - len(told.failures), len(told.failures)
    shard = f" {start.shard + 1}/{start.part.shards}" if start.part.shards > 1 else ""
    more = "; a fresh process goes on" if again else ""
    say(f"{start.part.name}{shard}: {held} held, {bad} failed, {len(told.skips)} not run, "
        f"{took:.1f} s{'' if told.ended else ', BROKEN OFF'}{more}")  # fmt: skip


def _code_text(code: int) -> str:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with code {code}"


def _tail(path: Path) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-TAIL:])


def as_data(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Outcomes as JSON has them."""
    return [
        {
            "name": o.part.name,
            "title": o.part.title,
            "state": o.state,
            "seconds": round(o.seconds, 2),
            "broken": o.broken,
            "tails": o.tails,
            "checks": o.told.checks,
            "skips": o.told.skips,
            "numbers": o.told.numbers,
            "notes": o.told.notes,
        }
        for o in outcomes
    ]
