"""A test's call on real ranks: each a process, forked from pytest's when the fixtures are ready."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from disttrain import context

from ..command import preloads
from ..plan.job import Plan
from . import faults, inside
from .job import End, Ends, Told, run_job
from .marks import Ask
from .reports import Outcome, Verdict, combine
from .stacks import threads_of

_STOPPED = 1.0  # seconds after which a stopped rank is lost


def warm_up() -> None:
    """Load, once, what the ranks of all tests need."""
    for package in preloads.FIRST:
        importlib.import_module(package)


def run(item: pytest.Item, ask: Ask, deadline: float) -> Outcome:
    """Run it, tell pytest's process what the ranks were warned of, and combine their reports."""
    warm_up()
    wrong = faults.for_real(ask)
    plan = Plan(
        (item.nodeid,), ask.num_ranks, min_ranks=1 if wrong else 0, stopped_timeout=_STOPPED
    )

    def body(rank: int) -> tuple[Told, BaseException | None]:
        prepare(item, ask.backend)
        faults.strike(wrong, rank, happens)
        return inside.call_phase(item)

    reader, writer = os.pipe()

    def happens(what: str) -> None:
        os.write(writer, f"{what}\n".encode())

    try:
        seconds = max(0.1, deadline - time.monotonic())
        ends = run_job(plan, body, seconds, item.config.getoption("capture") == "no")
    finally:
        os.close(writer)
        happened = _lines(reader)
    subtests = tell_pytest(item, [end.told for end in ends.all])
    gone = faults.doomed(happened)
    verdicts = [verdict_of(item.config, end, ends, end.rank in gone) for end in ends.all]
    outcome = combine(ask.num_ranks, verdicts, "", ends.said, faults.amiss(wrong, happened))
    return outcome.with_subtests(subtests)


def _lines(reader: int) -> list[str]:
    with os.fdopen(reader, "rb") as file:
        return file.read().decode().splitlines()


def prepare(item: pytest.Item, backend: str | None) -> None:
    """What a rank does around the test's function: the default group, if it was asked for."""
    runtest: Callable[[], Any] = item.runtest

    def in_rank() -> None:
        dist: Any = None if backend is None else importlib.import_module(preloads.DISTRIBUTED)
        if dist is not None:
            dist.init_process_group(backend)
        runtest()
        if getattr(item, "_excinfo", None):  # of a unittest, which has failed
            return
        if dist is not None and dist.is_initialized():
            dist.destroy_process_group()
        context.current().end()

    item.runtest = in_rank  # type: ignore[method-assign]


def tell_pytest(item: pytest.Item, all_told: Sequence[Told | None]) -> int:
    """What is pytest's own business: warnings, each once, reports of subtests, a request to end.
    How many subtests have failed."""
    seen: list[list[Any]] = []
    failed = 0
    for rank, told in enumerate(all_told):
        if told is None:
            continue
        if "exit" in told:
            pytest.exit(*told["exit"])
        seen += [warning for warning in told["warnings"] if warning not in seen]
        for data in told["logged"]:
            make = item.config.hook.pytest_report_from_serializable
            report = make(config=item.config, data=data)
            of = getattr(getattr(report, "context", None), "kwargs", None)
            if isinstance(of, dict) and len(all_told) > 1:
                of["rank"] = rank
            item.ihook.pytest_runtest_logreport(report=report)
            failed += report.failed
    inside.warn_again(seen)
    return failed


def verdict_of(config: pytest.Config, end: End, ends: Ends, doomed: bool = False) -> Verdict:
    """What a rank's end means for the test."""
    if end.told is not None:
        report = config.hook.pytest_report_from_serializable(config=config, data=end.told["report"])
        return Verdict(end.rank, report, end.told.get("cause", ""), end.told["echo"])
    report, stopped = end.report, False
    doing = f"; its last call: {report.doing}" if report is not None and report.doing else ""
    cause = "the launcher's agent died, and its ranks with it"
    if ends.hung:
        cause = f"{ends.hung}{doing}"
    elif report is not None and report.stopped:
        cause, stopped = f"ended by the launcher, since others had failed{doing}", True
    elif report is not None:
        cause = report.cause.replace("its program", "the test") + doing
    spared = doomed and not ends.hung
    return Verdict(end.rank, None, cause, None, spared, stopped, threads_of(end.stacks))
