"""What the launcher says of a failure: the root cause on top, the other ranks below it."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from disttrain.outputs import put

from ..plan.policy import Exit
from ..worker.logs import write_whole

BAR = "=" * 60
VANISHED = "ended with exit code 0 in the middle of its program (os._exit, or an exec)"


@dataclass(frozen=True)
class RankReport:
    """How one rank ended. ``doing``: what it was in the middle of; ``last``: what it did last, the
    newest at the end; ``step``: how many steps of training it had made; ``time_ns``: when its end
    was first seen (wall clock)."""

    rank: int
    pid: int
    code: int
    signal: int
    cause: str
    traceback: str
    doing: str
    echo: bool  # its error only says that another rank failed
    stopped: bool  # the launcher stopped it
    vanished: bool = False  # it ended with code 0, but not at the end of its program
    error_file: str = ""  # where its exception stands as JSON
    local_rank: int = -1  # on its node; -1: as ``rank``
    host: str = ""
    step: int = 0
    last: tuple[str, ...] = ()
    said: tuple[str, ...] = ()  # the last lines of its stderr, where it left no exception
    time_ns: int = 0


def say(text: str) -> None:
    """One line of the launcher's own."""
    put(f"dtrun: {text}\n")


def cause_of(exit_: Exit, recorded: str) -> str:
    """One line: the recorded exception, the signal's name, or the exit code."""
    if recorded:
        return recorded
    if exit_.signal:
        name = signal.Signals(exit_.signal).name
        hint = " (out of memory?)" if exit_.signal == signal.SIGKILL else ""
        return f"killed by {name}{hint}"
    return f"exit code {exit_.code}" if exit_.code else "finished"


def headline(first: RankReport, others: list[RankReport], program: str) -> str:
    """The block that people paste into issues."""
    lines = [BAR, f"{program} FAILED", "", "Root Cause (first observed failure):"]
    lines.append(f"  time      : {_moment(first.time_ns or time.time_ns())}")
    lines.append(f"  host      : {first.host or os.uname().nodename}")
    local_rank = first.rank if first.local_rank < 0 else first.local_rank
    lines.append(f"  rank      : {first.rank} (local_rank: {local_rank})")
    lines.append(f"  cause     : {first.cause.replace(chr(10), chr(10) + ' ' * 14)}")
    lines.append(f"  exitcode  : {first.code} (pid: {first.pid})")
    lines.append(f"  error_file: {first.error_file or '<N/A>'}")
    if first.step:
        lines.append(f"  step      : {first.step}")
    if first.doing:
        lines.append(f"  was in    : {first.doing}")
    lines += _listed("did last", first.last) + _listed("said last", first.said)
    if first.traceback:
        lines.append("  traceback :")
        lines += ["    " + line for line in first.traceback.rstrip().splitlines()]
    if others:
        lines += ["", "Other ranks:"]
        lines += [f"  rank {r.rank}: {_short(r)}" for r in others]
    return "\n".join([*lines, BAR])


def _listed(name: str, texts: Sequence[str]) -> list[str]:
    return [f"  {f'{name:<10}:' if i == 0 else ' ' * 11} {text}" for i, text in enumerate(texts)]


def _moment(wall: int) -> str:
    """A time of the wall clock in nanoseconds, to the microsecond."""
    seconds = time.localtime(wall // 10**9)
    return f"{time.strftime('%Y-%m-%d_%H:%M:%S', seconds)}.{wall % 10**9 // 1000:06}"


def elsewhere(node: str, report: dict[str, Any], program: str) -> str:
    """The block on nodes where it did not happen. ``report``: what the node has told of it."""
    lines = [BAR, f"{program} FAILED", "", f"Root Cause (first observed failure), on node {node}:"]
    cause = str(report.get("cause", "unknown"))
    lines.append(
        f"  rank      : {report.get('rank', '?')} (local_rank: {report.get('local_rank')})"
    )
    lines.append(f"  cause     : {cause.replace(chr(10), chr(10) + ' ' * 14)}")
    lines.append(f"  exitcode  : {report.get('code', '?')} (pid: {report.get('pid', '?')})")
    lines += ["", f"What it has printed, and where it was, stands in the output of {node}."]
    return "\n".join([*lines, BAR])


def _short(r: RankReport) -> str:
    text = r.cause.splitlines()[0] if r.cause else "finished"
    if r.stopped and not r.echo:
        text = f"stopped by the launcher ({text})"
    return text + (f"; was in {r.doing}" if r.doing and not r.echo else "")


def write_report(
    log_dir: str,
    first: RankReport | None,
    all_: list[RankReport],
    code: int,
    replaced: Sequence[RankReport] = (),
) -> None:
    """``report.json``: the same for machines. ``replaced``: ranks that were started anew."""
    content: dict[str, Any] = {
        "exitcode": code,
        "host": os.uname().nodename,
        "time_ns": time.time_ns(),
        "root_cause": None if first is None else first.__dict__,
        "ranks": [r.__dict__ for r in all_],
        "replaced": [r.__dict__ for r in replaced],
    }
    why_not = write_whole(os.path.join(log_dir, "report.json"), json.dumps(content, indent=1))
    if why_not:
        say(why_not)
