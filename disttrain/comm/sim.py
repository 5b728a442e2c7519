"""A simulated cluster: N ranks as threads of one process, one at a time, under a seeded scheduler.

The ranks move data through the shared-memory transport over a private segment, so a simulation
runs the very code that real ranks run; what is replaced is the waiting. A rank that waits hands
the baton to the scheduler, which picks who goes on from a seeded generator: the same seed gives
the same schedule, and different seeds try different interleavings. Time is virtual: the clock
moves only when nobody can go on and somebody sleeps (or probes with a short deadline), up to
the next wake-up or deadline. When nobody can go on and time cannot help, every rank raises
``Deadlock`` at once, with what each one waits for (real ranks would wait for their deadline).

Knows threads, waiting and the segment; no arrays, no verbs.
"""

from __future__ import annotations

import random
import threading
import traceback as tracebacks
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .. import context
from ..errors import ConfigError, Deadlock, LaunchError, PeerFailed, WaitTimeout
from .control import JOB_SLOT, Segment
from .worker_env import STRICT_SLOT

# A rank that waits also moves its share of what is in flight, piece by piece, so one round in which
# nobody's wait ends does not prove that nobody can go on. So many in a row do.
ROUNDS_IN_VAIN = 2000
SIM_ARENA_BYTES = 1 << 30  # addresses; pages exist once they are touched


@dataclass
class Simulation:
    """What a simulation gives: the ranks' results, who went on when, and the clock at the end."""

    results: list[Any]
    schedule: list[int] = field(repr=False)
    seconds: float


class _Task:
    """One simulated rank."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.baton = threading.Semaphore(0)
        self.what: Callable[[], str] | None = None
        self.wake_at: float | None = None
        self.deadline = self.limit = 0.0
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.text = ""


class Scheduler:
    """Hands one baton around. Only the thread that holds it runs, so nothing here needs a lock."""

    def __init__(self, num_ranks: int, seed: int) -> None:
        self.tasks = [_Task(r) for r in range(num_ranks)]
        self.random = random.Random(seed)
        self.schedule: list[int] = []
        self.clock = 0.0
        self.idle: set[int] = set()  # ranks that have looked in vain since anything moved
        self.rounds = 0
        self.failed = False
        self.deadlock = ""
        self.over = threading.Event()

    def pass_on(self, task: _Task) -> None:
        """Let somebody go on; return when the baton comes back to ``task``."""
        following = self._choose()
        if following is not task:
            following.baton.release()
            task.baton.acquire()

    def moved(self) -> None:
        """Something has changed: who looked in vain may look again."""
        self.idle.clear()
        self.rounds = 0

    def finish(self, task: _Task) -> None:
        """``task`` has ended: the baton goes on for good."""
        task.done = True
        self.moved()
        if any(not t.done for t in self.tasks):
            self._choose().baton.release()
        else:
            self.over.set()

    def start(self) -> None:
        self._choose().baton.release()

    def _choose(self) -> _Task:
        alive = [t for t in self.tasks if not t.done]
        awake = [t for t in alive if t.wake_at is None or t.wake_at <= self.clock]
        hopeful = [t for t in awake if t.rank not in self.idle]
        if not hopeful and awake and self.rounds < ROUNDS_IN_VAIN:
            self.rounds, hopeful = self.rounds + 1, awake
            self.idle.clear()
        task = self.random.choice(hopeful or self._nobody_can(alive))
        self.schedule.append(task.rank)
        return task

    def _nobody_can(self, alive: list[_Task]) -> list[_Task]:
        self.moved()
        events = [t.wake_at for t in alive if t.wake_at is not None and t.wake_at > self.clock]
        waiting = [t for t in alive if t.what is not None]
        events += [t.deadline for t in waiting if events or t.limit <= context.PROBE_SECONDS]
        if events:
            self.clock = max(self.clock, min(events))
            return [t for t in alive if t.wake_at is None or t.wake_at <= self.clock]
        if not self.failed:
            lines = [f"  rank {t.rank}: {t.what() if t.what else 'runs'}" for t in alive]
            ended = [t.rank for t in self.tasks if t.done]
            if ended:
                lines.append(f"  ended already: rank{'s' if len(ended) > 1 else ''} "
                             + ", ".join(map(str, ended)))  # fmt: skip
            self.deadlock = "no simulated rank can go on:\n" + "\n".join(lines)
        return alive


class SimWaiter(context.Waiter):
    """How a simulated rank waits."""

    def __init__(self, scheduler: Scheduler, task: _Task) -> None:
        super().__init__()
        self.scheduler, self.task = scheduler, task

    def now(self) -> float:
        return self.scheduler.clock

    def sleep(self, seconds: float) -> None:
        self.task.wake_at = self.scheduler.clock + max(seconds, 0.0)
        while self.scheduler.clock < self.task.wake_at:
            self.scheduler.pass_on(self.task)
        self.task.wake_at = None
        self.scheduler.moved()

    def wait_until(
        self,
        ready: Callable[[], bool],
        what: Callable[[], str],
        timeout: float | None,
        block: Callable[[float], None] | None = None,
    ) -> None:
        scheduler, task = self.scheduler, self.task
        start = scheduler.clock
        limit = context.DEFAULT_TIMEOUT if timeout is None else timeout
        task.what, task.limit, task.deadline = what, limit, start + limit
        while not ready():
            if scheduler.deadlock:
                raise Deadlock(scheduler.deadlock)
            if scheduler.failed:
                for check in list(self.interrupts):
                    check()
            if scheduler.clock >= task.deadline and (scheduler.clock > start or limit <= 0):
                task.what = None
                raise WaitTimeout(f"waited {limit:g} s for {what()}; the deadline passed")
            scheduler.idle.add(task.rank)
            scheduler.pass_on(task)
        task.what = None
        scheduler.moved()
        scheduler.pass_on(task)


class Killed(BaseException):
    """Ends a simulated rank at once; no program catches it by accident."""


def die() -> None:
    """End the calling simulated rank, as ``kill -9`` would end a real one."""
    raise Killed("killed")


def simulate(
    fn: Callable[..., Any],
    world_size: int,
    seed: int = 0,
    args: tuple = (),
    strict: bool | None = None,
) -> Simulation:
    """Run ``fn(*args)`` on ``world_size`` simulated ranks and return their results.

    Inside, everything behaves as under the launcher: ``context.current()`` is the rank, and
    ``init_process_group()`` needs no arguments. ``strict``: groups compare calling lines and
    shapes, too (None: as the environment says). The first exception of a rank is raised as
    ``LaunchError`` with its traceback (the exception itself is its ``__cause__``), a deadlock as
    ``Deadlock``.
    """
    scheduler = run_tasks(fn, world_size, seed, args, strict)
    _raise_first(scheduler.tasks)
    results = [t.result for t in scheduler.tasks]
    return Simulation(results, scheduler.schedule, scheduler.clock)


def run_tasks(
    fn: Callable[..., Any],
    world_size: int,
    seed: int = 0,
    args: tuple = (),
    strict: bool | None = None,
) -> Scheduler:
    """As ``simulate``, but failed ranks raise nothing here: ``tasks`` of the result tell each
    rank's ``result``, ``error`` and traceback ``text``."""
    if world_size < 1:
        raise ConfigError(f"simulate: world_size={world_size} given; at least one rank is needed")
    segment = Segment.create(world_size, SIM_ARENA_BYTES)
    scheduler = Scheduler(world_size, seed)
    threads = [
        threading.Thread(
            target=_run,
            args=(scheduler, task, segment, fn, args, strict),
            name=f"rank-{task.rank}",
            daemon=True,
        )
        for task in scheduler.tasks
    ]
    for thread in threads:
        thread.start()
    scheduler.start()
    scheduler.over.wait()
    for thread in threads:
        thread.join()
    segment.close()
    return scheduler


def _run(
    scheduler: Scheduler,
    task: _Task,
    segment: Segment,
    fn: Callable[..., Any],
    args: tuple,
    strict: bool | None,
) -> None:
    task.baton.acquire()
    n = len(scheduler.tasks)
    rank = context.Rank(task.rank, n, task.rank, n, SimWaiter(scheduler, task))
    rank.slots[JOB_SLOT] = segment
    if strict is not None:
        rank.slots[STRICT_SLOT] = strict
    try:
        with context.attach(rank):
            task.result = fn(*args)
            rank.end()
    except BaseException as error:
        task.error, task.text = error, tracebacks.format_exc()
        segment.publish_failure(task.rank, f"{type(error).__name__}: {error}", task.text)
        scheduler.failed = True
    finally:
        scheduler.finish(task)


def _raise_first(tasks: list[_Task]) -> None:
    failed = [t for t in tasks if t.error is not None]
    if not failed:
        return
    first = next((t for t in failed if not isinstance(t.error, PeerFailed)), failed[0])
    others = "".join(f"\n  also rank {t.rank}: {t.error}" for t in failed if t is not first)
    if isinstance(first.error, Deadlock):
        raise first.error
    raise LaunchError(f"simulated rank {first.rank} failed:\n{first.text}{others}") from first.error
