"""Runs processes for a test, each with a place where it leaves what it has to tell and, when it
is ended, its stacks. Knows the launcher; what the processes do for the test is said by ``body``.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from disttrain import context
from disttrain.comm.job.segment import JOB_SLOT
from disttrain.errors import PeerFailed

from ..command.launch import SIGNALS, Job
from ..node.outcome import Attempt
from ..node.report import RankReport
from ..plan.job import Plan, reserve_port
from .inside import to_json

GRACE = 3.0  # seconds that the others have to tell of themselves when a rank has failed
_LAST_WORDS = 0.5  # seconds that hung ranks have to say where they stand
_ASK = signal.SIGQUIT  # where they stand

Told = dict[str, Any]
# (rank) -> what to tell, and what it has failed of
Body = Callable[[int], tuple[Told, BaseException | None]]


@dataclass
class End:
    """How a process ended. ``told``: None where it could not."""

    rank: int
    told: Told | None
    report: RankReport | None
    stacks: str = ""


@dataclass
class Ends:
    """How all of them ended. ``hung``: why they were ended, where they were; ``said``: what the
    launcher said, and what was written past the captures."""

    all: list[End] = field(default_factory=list)
    hung: str = ""
    said: str = ""


class _Places:
    """Files in memory, that processes which are forked later share with this one."""

    def __init__(self, names: list[str]) -> None:
        self.fds = {name: os.memfd_create(name) for name in names}

    def read(self, name: str) -> bytes:
        fd = self.fds[name]
        return os.pread(fd, os.fstat(fd).st_size, 0)

    def close(self) -> None:
        for fd in self.fds.values():
            os.close(fd)


def run_job(plan: Plan, body: Body, seconds: float, shown: bool) -> Ends:
    """Run ``body`` on the plan's ranks, for at most so long. ``shown``: what they write to their
    stdout and stderr appears on ours. An exception that comes while they run (Ctrl-C, another
    plugin's time limit) ends them, too."""
    ranks = range(plan.num_ranks)
    places = _Places(["said"] + [f"{kind} {r}" for r in ranks for kind in ("told", "stacks")])
    holder = reserve_port()
    with closing(places), holder:
        plan = replace(
            plan, signals=SIGNALS, master_port=holder.getsockname()[1], grace=GRACE,
            shutdown_timeout=_LAST_WORDS,
        )  # fmt: skip
        said = places.fds["said"]
        job = Job(plan, lambda rank: _in_rank(rank, body, places), None if shown else (said, said))
        ends = Ends()
        try:
            if not job.wait(seconds):
                ends.hung = f"not ended after {seconds:.3g} s"
                _ask(job)
        except pytest.fail.Exception as error:
            ends.hung = str(error)
            _ask(job)
        finally:
            attempt = job.end()
        ends.all = [_end_of(rank, places, attempt) for rank in ranks]
        ends.said = places.read("said").decode("utf-8", "replace")
    return ends


def _ask(job: Job) -> None:
    """Let the ranks say where they stand, and be ended."""
    job.ask(_ASK)
    job.wait(4 * _LAST_WORDS)


def _end_of(rank: int, places: _Places, attempt: Attempt | None) -> End:
    data = places.read(f"told {rank}")
    stacks = places.read(f"stacks {rank}").decode("utf-8", "replace")
    told = json.loads(data) if data.endswith(b"\n") else None
    reports = {} if attempt is None else {r.rank: r for r in attempt.ranks}
    return End(rank, told, reports.get(rank), stacks)


def _in_rank(rank: int, body: Body, places: _Places) -> bytes:
    """Run the body, tell of it, and end as a rank that has failed, or as one that has not."""
    stacks = places.fds[f"stacks {rank}"]
    faulthandler.enable(file=stacks)
    faulthandler.register(_ASK, file=stacks, all_threads=True)
    faulthandler.register(signal.SIGTERM, file=stacks, all_threads=True, chain=True)
    me = os.getpid()
    told, error = body(rank)
    if os.getpid() != me:
        os._exit(0 if error is None else 1)  # a process that the test has forked
    os.pwrite(places.fds[f"told {rank}"], to_json(told) + b"\n", 0)
    if error is None:
        return b""
    segment = context.current().slots[JOB_SLOT]
    cause = f"{type(error).__name__}: {error}"
    segment.slot(rank).record_error(cause, "")
    if not isinstance(error, PeerFailed):
        segment.publish_failure(rank, cause)
    raise SystemExit(1)
