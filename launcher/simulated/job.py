"""Run a script on a simulated cluster: every rank a thread that runs it as its own ``__main__``.

The cluster is ``disttrain.comm.transports.sim``'s; here a rank gets its place in the process
(``ambient``), its voice (``voices``), its program and its end, and what came of it is told as by
real ranks.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from disttrain import settings
from disttrain.comm.transports.sim import (
    Cluster,
    Fabric,
    Scheduler,
    SimWaiter,
    chakra,
    first_failed,
    run_cluster,
)
from disttrain.comm.transports.sim import faults as points
from disttrain.comm.transports.sim import timeline as timelines
from disttrain.comm.transports.sim.fabric import LOCAL, REMOTE
from disttrain.comm.transports.sim.network import Link
from disttrain.comm.transports.sim.scheduler import Task
from disttrain.comm.transports.sim.stacks import standing
from disttrain.context import PROGRAM_SLOT, current
from disttrain.errors import Deadlock, PeerFailed
from disttrain.outputs import UNHEARD, is_heard

from ..node.report import RankReport, headline
from ..options.logs import streams_of
from ..options.simulation import Flags
from ..plan.job import Plan
from ..worker.environment import worker_env
from ..worker.main import FAREWELL, exit_code, format_error
from ..worker.program import here
from .debugging import Debugging
from .output import RankStream
from .process_state import Ambient, Ended, Stage
from .watch import Watch, say_aside

NO_TIME = "0"  # what programs compute, where all that can happen is to be tried
_SHOWN = 16  # ranks that are told one by one


@dataclass
class Outcome:
    """What came of a job. ``counts``: how often each rank called each verb; ``blame``: (rank, type
    of error, text) of every rank that failed, the one that the others failed for first; ``named``:
    (rank, the rank that its ``PeerFailed`` names, and that one's cause)."""

    code: int
    blame: list[tuple[int, str, str]] = field(default_factory=list)
    named: list[tuple[int, int, str]] = field(default_factory=list)
    counts: dict[tuple[int, str], int] = field(default_factory=dict)
    happened: list[str] = field(default_factory=list)


def make_cluster(num_ranks: int, flags: Flags, compute: str) -> Cluster:
    """What ``flags`` describe. ``compute``: what is taken where they say nothing. Raises
    ``ConfigError``."""
    hosts = flags.hosts or 1
    far = _link(flags.latency, flags.bandwidth, REMOTE)
    if hosts == 1:
        far = near = _link(flags.latency, flags.bandwidth, LOCAL)
    else:
        near = LOCAL
    near = _link(flags.local_latency, flags.local_bandwidth, near)
    told = flags.compute or compute
    cluster = Cluster(
        num_ranks,
        hosts,
        near,
        far,
        flags.algorithm,
        None if told == "measured" else points.seconds_of(told),
        tuple(points.parse_straggler(text, num_ranks) for text in flags.straggler),
        tuple(
            points.parse_fault(kind, text, num_ranks)
            for kind in (points.KILL, points.DROP, points.DELAY)
            for text in getattr(flags, kind)
        ),
    )
    assert cluster.network  # refuses what does not fit
    return cluster


def _link(latency: str, bandwidth: str, default: Link) -> Link:
    return Link(
        points.seconds_of(latency) if latency else default.latency,
        points.bandwidth_of(bandwidth) if bandwidth else default.bandwidth,
    )


class Job:
    """One run of a plan's program on a cluster, or of ``body(rank)`` instead, which tells by itself
    what it fails of."""

    def __init__(
        self,
        plan: Plan,
        cluster: Cluster,
        seed: int,
        body: Callable[[int], None] | None = None,
        debugging: Debugging | None = None,
    ) -> None:
        self.plan, self.cluster, self.seed, self.body = plan, cluster, seed, body
        self.debugging = debugging
        hosts = cluster.network.hosts
        if plan.face:  # before the ranks' environments, by which their processes find it
            importlib.import_module(plan.face).install()
        self.ambients = []
        for rank in range(plan.num_ranks):
            mine = [r for r in range(plan.num_ranks) if hosts[r] == hosts[rank]]
            env = worker_env(plan, plan.alone(), rank)
            env |= {"LOCAL_RANK": str(mine.index(rank)), "LOCAL_WORLD_SIZE": str(len(mine))}
            env |= {"GROUP_RANK": str(hosts[rank]), "GROUP_WORLD_SIZE": str(cluster.num_hosts)}
            seed_text = f"{seed} {rank}"
            self.ambients.append(
                Ambient(rank, dict(settings.environment()) | env, plan.program, seed_text)
            )
        self.stage = Stage(self.ambients)
        self.stacks: list[str] = []
        self.texts: dict[int, str] = {}  # the tracebacks of ranks that failed
        self.watch: Watch | None = None

    def run(self) -> tuple[Scheduler, Fabric]:
        """Run it to its end. The process cannot be used for anything else afterwards."""
        self.stage.open()
        voices = self._voice(1, sys.stdout), self._voice(2, sys.stderr)
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__ = voices  # type: ignore
        self._follow(voices)
        try:
            scheduler, fabric = run_cluster(self._program, self.cluster, self.seed, self._set_up)
        finally:
            if self.watch is not None:
                self.watch.end()
        for voice in voices:
            voice.finish()
        return scheduler, fabric

    def _follow(self, voices: tuple[RankStream, ...]) -> None:
        """Let the debugger say who is heard."""
        debugging = self.debugging
        if debugging is None:
            return

        def changed() -> None:
            for voice in voices:
                voice.muted = debugging.muted
            if self.watch is not None:
                self.watch.quiet = debugging.talks

        debugging.when_changed.append(changed)
        changed()

    def _voice(self, which: int, stream: Any) -> RankStream:
        plan, name = self.plan, ("stdout.log", "stderr.log")[which - 1]

        def path(rank: int) -> str:
            wanted = streams_of(plan.redirects, rank) | streams_of(plan.tee, rank)
            if plan.log_dir is None or not wanted & which:
                return ""
            return os.path.join(plan.rank_dir(plan.alone(), rank), name)

        shown = range(plan.num_ranks) if plan.shown is None else plan.shown
        kept = [
            r
            for r in shown
            if not streams_of(plan.redirects, r) & which or streams_of(plan.tee, r) & which
        ]
        everything = plan.shown is None and len(kept) == plan.num_ranks
        return RankStream(stream, _calling_rank, plan.num_ranks, None if everything else kept, path)

    def _set_up(self, scheduler: Scheduler, fabric: Fabric) -> None:
        def look() -> None:
            self.stacks = standing(scheduler.alive)

        scheduler.at_deadlock = look
        scheduler.when_entered = self.stage.enter
        self.watch = Watch(scheduler, say_aside)
        if self.debugging is not None:
            self.debugging.set_up(scheduler)

    def _program(self) -> None:
        """What a rank runs; raises what it fails of."""
        rank = _calling_rank()
        assert rank is not None
        mine = self.ambients[rank]
        code, how = 0, ""
        if self.debugging is not None:
            self.debugging.begin()
        try:
            try:
                self._script() if self.body is None else self.body(rank)
            except SystemExit as stop:
                code, how = exit_code(stop), getattr(stop, "told", "")
        except Exception as error:
            self.texts[rank] = format_error(error)
            if self.body is None and not isinstance(error, (Deadlock, PeerFailed)):
                sys.stderr.write(self.texts[rank])
            if self.debugging is not None and self.plan.post_mortem:
                self.debugging.look_at(error)
            mine.end(FAREWELL)
            raise
        mine.end()
        if code:
            raise Ended(code, how or f"exit code {code}")

    def _script(self) -> None:
        plan = self.plan
        current().slots[PROGRAM_SLOT] = (list(plan.program), plan.module, False, plan.face)
        for name in self.plan.observers:
            importlib.import_module(name).begin()
        name = self.plan.program[0]
        if self.plan.module:
            sys.path.insert(0, here())
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, os.path.dirname(os.path.join(here(), name)))
            runpy.run_path(name, run_name="__main__")


def _calling_rank() -> int | None:
    waiter = current().waiter
    return waiter.rank if isinstance(waiter, SimWaiter) else None


# --- what came of it -------------------------------------------------------------------------


def outcome_of(scheduler: Scheduler, fabric: Fabric) -> Outcome:
    """The same as data."""
    first, failed = first_failed(scheduler)
    order = [] if first is None else [first, *(t for t in failed if t is not first)]
    code = 0 if first is None else _code_of(first)
    blame = [(t.rank, type(t.error).__name__, _cause_of(t)) for t in order]
    lost = [(t.rank, t.error) for t in order if isinstance(t.error, PeerFailed)]
    named = [(rank, error.rank, error.cause) for rank, error in lost]
    return Outcome(code, blame, named, fabric.calendar.counts, fabric.happened)


def _code_of(task: Task) -> int:
    if isinstance(task.error, Ended):
        return task.error.code
    if isinstance(task.error, KeyboardInterrupt):
        return 130
    return 137 if task.killed else 1


def _cause_of(task: Task) -> str:
    error = task.error
    named = error is not None and not isinstance(error, Ended) and not task.killed
    return f"{type(error).__name__}: {error}" if named else str(error)


def tell_failure(job: Job, scheduler: Scheduler) -> None:
    """The headline, as of real ranks; at a deadlock, where every rank stands."""
    first, failed = first_failed(scheduler)
    if first is None:
        return
    if job.stacks:
        say("no simulated rank can go on; this is where they stand:")
        sys.stderr.write("\n".join(job.stacks) + "\n")
        ended = [t.rank for t in scheduler.tasks if t.done and t.error is None]
        if ended:
            say(f"ended before that: {len(ended)} ranks, of them rank {ended[0]}")
    echoes = (PeerFailed, Deadlock)
    others = [t for t in failed if t is not first and not isinstance(t.error, echoes)]
    reports = [_report_of(job, t) for t in (first, *others[:_SHOWN])]
    sys.stderr.write(headline(reports[0], reports[1:], " ".join(job.plan.program)) + "\n")
    echoed = len(failed) - len(others) - 1
    if echoed > 0:
        say(f"{echoed} other ranks ended with it")


def _report_of(job: Job, task: Task) -> RankReport:
    cause, text = _cause_of(task), ""
    if isinstance(task.error, Deadlock) and job.stacks:
        cause = "Deadlock: no simulated rank can go on"
    else:
        text = job.texts.get(task.rank, "")
    code = _code_of(task)
    return RankReport(task.rank, os.getpid(), code, 0, cause, text, "", False, False)


def tell_times(job: Job, scheduler: Scheduler, fabric: Fabric, real: float) -> None:
    """What the run has taken on the cluster, and where the timeline is."""
    cluster = job.cluster
    shown = timelines.shown
    say(
        f"simulated {cluster.num_ranks} ranks on {cluster.num_hosts} "
        f"host{'s' if cluster.num_hosts > 1 else ''}: {shown(scheduler.clock)} of virtual time "
        f"in {shown(real)}; seed {job.seed}"
    )
    for line in timelines.summary(fabric.timeline):
        say(line)


def write_timeline(path: str, fabric: Fabric) -> None:
    """Write the Chrome trace, whole or not at all."""
    if not path:
        handle, path = tempfile.mkstemp(prefix="dtrun_timeline_", suffix=".json")
        os.close(handle)
    folder = os.path.dirname(os.path.abspath(path))
    with tempfile.NamedTemporaryFile("w", dir=folder, delete=False, encoding="utf-8") as file:
        timelines.write(file, fabric.timeline, fabric.network.hosts)
    os.replace(file.name, path)
    cut = " (single spans are cut: there were too many)" if fabric.timeline.cut else ""
    say(f"timeline: {path}{cut}; open it in ui.perfetto.dev")


def run_job(plan: Plan, flags: Flags, debugging: Debugging) -> int:
    """Run a program once; the exit code. Does not return before all of it has been told."""
    cluster = make_cluster(plan.num_ranks, flags, "measured")
    job = Job(plan, cluster, flags.seed, debugging=debugging)
    debugging.listen()
    streams = sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__
    start = time.monotonic()
    scheduler, fabric = job.run()
    real = time.monotonic() - start
    sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__ = streams  # type: ignore[misc]
    outcome = outcome_of(scheduler, fabric)
    if outcome.code == UNHEARD and not (is_heard(1) and is_heard(2)):
        return UNHEARD
    if told := debugging.told_at_end():
        say(told)
    tell_failure(job, scheduler)
    for fault in outcome.happened[:_SHOWN]:
        say(f"struck: {fault}")
    tell_times(job, scheduler, fabric, real)
    write_timeline(flags.timeline, fabric)
    if flags.chakra:
        paths = chakra.write_timeline(fabric.timeline, flags.chakra)
        say(f"Chakra traces: {paths[0]} to {paths[-1]}")
    left = sum(task.error is None for task in scheduler.tasks)
    return 0 if 0 < plan.min_ranks <= left else outcome.code


def say(text: str) -> None:
    """A line of the launcher's own."""
    sys.stderr.write(f"dtrun: {text}\n")
