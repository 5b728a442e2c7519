"""``dtrun --simulate N --explore K``, second part: every order in which messages can meet receives;
and ``--replay ORDER``, which runs one of them.

Which orders there are is ``disttrain.comm.transports.sim.interleavings``'s affair; here a run is a
process, and its result what each rank prints and how it ends.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from typing import Any

from disttrain.comm.transports.sim.choosing import ChosenPosts, end_of, install
from disttrain.comm.transports.sim.fabric import Cluster, Fabric
from disttrain.comm.transports.sim.interleavings import (
    ENDED,
    Ran,
    Schedule,
    Verdict,
    parse_schedule,
    search,
)
from disttrain.comm.transports.sim.scheduler import Scheduler
from disttrain.errors import ConfigError, LaunchError

from ..options.simulation import Flags, words_of
from ..plan.job import Plan
from .forked import Lost, in_child
from .job import NO_TIME, Job, make_cluster, outcome_of, say, tell_failure
from .output import RankStream


class OrderedJob(Job):
    """A job whose messages meet by ``schedule``. ``shown``: with its outputs, or they are kept."""

    posts: ChosenPosts

    def __init__(
        self, plan: Plan, cluster: Cluster, seed: int, schedule: Schedule, shown: bool
    ) -> None:
        super().__init__(plan, cluster, seed)
        self.schedule, self.shown = schedule, shown
        self.said = [""] * plan.num_ranks

    def _set_up(self, scheduler: Scheduler, fabric: Fabric) -> None:
        super()._set_up(scheduler, fabric)
        self.posts = install(scheduler, fabric, self.schedule)

    def _voice(self, which: int, stream: Any) -> RankStream:
        made = super()._voice(which, stream)
        if which == 1 and not self.shown:
            made._say = self._keep  # type: ignore[method-assign]
        return made

    def _keep(self, rank: int, lines: str) -> None:
        self.said[rank] += lines

    def ran(self, scheduler: Scheduler) -> Ran:
        """What came of it."""
        end, text = end_of(scheduler)
        if self.stacks and end != ENDED:
            text = "\n".join(["no rank can go on; this is where they stand:", *self.stacks])
        results = [
            f"{said}ended with {task.error!r}\n" if task.error is not None else said
            for said, task in zip(self.said, scheduler.tasks, strict=True)
        ]
        return self.posts.ran(end, results, text)


def explore_orders(plan: Plan, flags: Flags, budget: int) -> int:
    """Try up to ``budget`` orders; 0 where none fails, else 1 after telling what was found."""
    if flags.kill or flags.drop or flags.delay:
        say("with faults, orders of messages are not tried one by one")
        return 0
    path, flags = (
        flags.verdict,
        dataclasses.replace(flags, explore=0, verdict="", timeline="", chakra=""),
    )
    verdict = search(lambda schedule: run_order(plan, flags, schedule), budget)
    if path:
        write_verdict(path, verdict, plan)
    for line in str(verdict).splitlines():
        say(line)
    if verdict.schedule is not None:
        say(f"replay it with: {replay_words(plan, flags, verdict.schedule)}")
    return int(verdict.is_counterexample)


def write_verdict(path: str, verdict: Verdict, plan: Plan) -> None:
    """As JSON."""
    found = verdict.as_json() | {"ranks": plan.num_ranks, "program": list(plan.program)}
    try:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)
            file.write("\n")
    except OSError as error:
        raise LaunchError(f"--verdict {path}: {error.strerror}; a file that can be written to is "
                          "needed") from None  # fmt: skip


def run_order(plan: Plan, flags: Flags, schedule: Schedule) -> Ran:
    """What comes of the program by ``schedule``, in a process of its own."""
    try:
        ran: Ran = in_child(lambda: _run(plan, flags, schedule, False)[0])
    except Lost as lost:
        return Ran("failed", text=str(lost))
    return ran


def _run(plan: Plan, flags: Flags, schedule: Schedule, shown: bool) -> tuple[Ran, int]:
    """The run, and its exit code."""
    cluster = make_cluster(plan.num_ranks, flags, NO_TIME)
    job = OrderedJob(plan, cluster, flags.seed, schedule, shown)
    streams = sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__
    scheduler, fabric = job.run()
    sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__ = streams  # type: ignore[misc]
    if shown:
        tell_failure(job, scheduler)
    return job.ran(scheduler), outcome_of(scheduler, fabric).code


def replay(plan: Plan, flags: Flags) -> int:
    """``--replay``: run one order, with what the ranks print; the exit code."""
    try:
        schedule = parse_schedule(flags.replay)
    except ValueError:
        raise ConfigError(
            f"--replay {flags.replay}: an order as --explore tells it is needed: how large the "
            "messages are that do not wait (all, none, or bytes), and the numbers of choices, as "
            "in all:0.1"
        ) from None
    ran, code = _run(plan, flags, schedule, True)
    for match in ran.matches:
        say(match)
    if len(ran.choices) < len(schedule.choices):
        say(f"--replay {flags.replay}: it has made {len(ran.choices)} choices; it is not the "
            "program that the order is of")  # fmt: skip
        return 2
    return code


def replay_words(plan: Plan, flags: Flags, schedule: Schedule) -> str:
    """The command line that runs ``schedule`` again."""
    words = ["dtrun", "--simulate", str(plan.num_ranks), *plan.as_face]
    words += words_of(dataclasses.replace(flags, replay=str(schedule)))
    words += ["-m"] if plan.module else []
    return shlex.join([*words, *plan.program])
