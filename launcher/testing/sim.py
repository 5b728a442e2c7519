"""A test's call on simulated ranks: threads of one process, which is forked from pytest's anew for
each seed, since a simulation changes it for good."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from disttrain.comm.transports.sim import Cluster, Killed, Scheduler
from disttrain.errors import ConfigError

from ..options.simulation import Flags
from ..plan.job import Plan
from ..simulated.explore import NO_TIME
from ..simulated.job import Job, make_cluster
from ..worker.environment import JOB_FD
from . import faults, inside
from .job import Ends, Told, run_job
from .marks import Ask, MarkError
from .real import prepare, tell_pytest, verdict_of, warm_up
from .reports import Outcome, Verdict, combine

_OPTIONS = ("hosts", "latency", "bandwidth", "local_latency", "local_bandwidth", "algorithm",
            "compute")  # fmt: skip


def wanted(item: pytest.Item, ask: Ask) -> bool:
    """By the mark, or for all tests."""
    return ask.simulated or item.config.getoption("simulate_ranks")


def cluster_of(ask: Ask) -> Cluster:
    """What the mark describes; programs compute nothing, where it says nothing, so that all that
    may come first can. Raises ``ConfigError``."""
    given = dict(ask.cluster)
    unknown = [name for name in given if name not in _OPTIONS]
    if unknown:
        raise MarkError(
            f"@pytest.mark.ranks: simulate={given!r} given; {unknown[0]!r} is none of "
            f"{', '.join(_OPTIONS)}"
        )
    if not isinstance(given.get("hosts", 1), int):
        raise ConfigError(f"simulate={given!r}: hosts is a number")
    texts: dict[str, Any] = {
        name: value if name == "hosts" else str(value) for name, value in given.items()
    }
    return make_cluster(ask.num_ranks, faults.for_simulated(ask, Flags(**texts)), NO_TIME)


def run(item: pytest.Item, ask: Ask, deadline: float) -> Outcome:
    """One seed after the other, until one fails."""
    warm_up()
    only = item.config.getoption("ranks_seed")
    seeds = ask.seeds if only is None else (only,)
    outcome, warned = Outcome(ask.num_ranks), []
    for tried, seed in enumerate(seeds):
        head = _head(item, ask, seed, tried, len(seeds))
        outcome, told = _one(item, ask, seed, max(0.1, deadline - time.monotonic()), head)
        warned.append(told)
        if outcome.kind != "passed":
            break
    return outcome.with_subtests(tell_pytest(item, warned))


def _head(item: pytest.Item, ask: Ask, seed: int, tried: int, num_seeds: int) -> str:
    """How to see a failure again."""
    if num_seeds == 1 and not ask.simulated:
        return ""
    file = item.getparent(pytest.Module)
    place = os.path.relpath(item.path) + item.nodeid[len(file.nodeid) if file is not None else 0 :]
    words = ["pytest", place, f"--ranks-seed={seed}"]
    words += [] if ask.simulated else ["--simulate-ranks"]
    which = f"seed {seed}"
    which += f", after {tried} of {num_seeds} have passed" if tried else ""
    return f"{which}; run it again with: {shlex.join(words)}"


def _one(
    item: pytest.Item, ask: Ask, seed: int, seconds: float, head: str
) -> tuple[Outcome, Told | None]:
    plan = Plan((item.nodeid,), 1)
    cluster = cluster_of(ask)

    def body(rank: int) -> tuple[Told, BaseException | None]:
        os.environ.pop(JOB_FD, None)
        prepare(item, ask.backend)
        return Simulated(item, cluster, seed).run(), None

    ends = run_job(plan, body, seconds, item.config.getoption("capture") == "no")
    told = ends.all[0].told
    if told is None:  # it hung outside of the simulation, or died with all its ranks
        return combine(ask.num_ranks, [_lost(item, ask, ends)], head, ends.said), None
    if "exit" in told:
        return Outcome(ask.num_ranks), told
    gone = faults.doomed(told["happened"])
    verdicts = [_verdict(item.config, rank, each, rank in gone) for rank, each in
                enumerate(told["ranks"])]  # fmt: skip
    amiss = faults.amiss(cluster.faults, told["happened"])
    outcome = combine(ask.num_ranks, verdicts, head, ends.said, amiss)
    outcome.sections[:0] = [(name, text) for name, text in told["sections"]]
    return outcome, told


def _lost(item: pytest.Item, ask: Ask, ends: Ends) -> Verdict:
    verdict = verdict_of(item.config, ends.all[0], ends)
    verdict.ranks = tuple(range(ask.num_ranks))
    return verdict


def _verdict(config: pytest.Config, rank: int, told: Told, doomed: bool) -> Verdict:
    if told["report"] is None:
        return Verdict(rank, None, told["cause"], spared=doomed)
    report = config.hook.pytest_report_from_serializable(config=config, data=told["report"])
    return Verdict(rank, report, told.get("cause", ""), told["echo"])


class Simulated:
    """One run, in a process of its own."""

    def __init__(self, item: pytest.Item, cluster: Cluster, seed: int) -> None:
        self.item, self.cluster, self.seed = item, cluster, seed
        self.calls: dict[int, pytest.CallInfo[None]] = {}
        self.scheduler: Scheduler | None = None
        self.happened: list[str] = []

    def run(self) -> Told:
        """What to tell of all ranks."""
        item = self.item
        logged = inside.begin(item)
        runtest: Callable[[], Any] = item.runtest
        item.runtest = lambda: self._simulate(runtest)  # type: ignore[method-assign]
        before = len(item._report_sections)
        with inside.recorded_warnings() as warned:
            try:
                item.ihook.pytest_runtest_call(item=item)
            except pytest.exit.Exception as stop:
                return {"exit": [stop.msg, stop.returncode]}
            sections = [(f"Captured {key} {when}", text) for when, key, text in
                        item._report_sections[before:]]  # fmt: skip
            del item._report_sections[before:]
            ranks = [self._told_of(rank) for rank in range(self.cluster.num_ranks)]
        inside.save_coverage(item.config)
        return {
            "ranks": ranks,
            "sections": sections,
            "warnings": warned(),
            "logged": logged,
            "happened": self.happened,
        }

    def _simulate(self, runtest: Callable[[], Any]) -> None:
        def body(rank: int) -> None:
            call = pytest.CallInfo.from_call(
                runtest, when="call", reraise=(Killed, pytest.exit.Exception)
            )
            self.calls[rank] = call
            error = None if call.excinfo is None else call.excinfo.value
            if error is not None and not isinstance(error, _NO_FAILURE):
                raise error

        plan = Plan(tuple(sys.argv), self.cluster.num_ranks)
        streams = sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__
        job = Job(plan, self.cluster, self.seed, body)
        try:
            self.scheduler, fabric = job.run()
        finally:
            sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__ = streams  # type: ignore[misc]
        self.happened = list(fabric.happened)
        for task in self.scheduler.tasks:
            if isinstance(task.error, pytest.exit.Exception):
                raise task.error

    def _told_of(self, rank: int) -> Told:
        call = self.calls.get(rank)
        if call is not None:
            return inside.told_of(self.item, call)[0]
        task = None if self.scheduler is None else self.scheduler.tasks[rank]
        error = None if task is None else task.error
        return {"report": None, "cause": str(error or "it has not ended"), "echo": None}


_NO_FAILURE = (pytest.skip.Exception, pytest.xfail.Exception)
