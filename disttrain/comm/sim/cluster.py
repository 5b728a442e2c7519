"""A simulated cluster: N ranks as threads of one process, one at a time, under a seeded scheduler.

The ranks move data through the shared-memory transport over a private segment, so a simulation
runs the very code that real ranks run; what is replaced is the waiting (``scheduler``). The same
seed gives the same schedule, and different seeds try different interleavings. Time is virtual.
When nobody can go on and time cannot help, every rank raises ``Deadlock`` at once, with what each
one waits for (real ranks would wait for their deadline).

Knows ranks and the segment; no arrays, no verbs.
"""

from __future__ import annotations

import traceback as tracebacks
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ... import context
from ...errors import ConfigError, Deadlock, LaunchError, PeerFailed
from ..control import JOB_SLOT, Segment
from ..worker_env import STRICT_SLOT
from .scheduler import Killed, Scheduler, SimWaiter, Task

SIM_ARENA_BYTES = 1 << 30  # addresses; pages exist once they are touched


@dataclass
class Simulation:
    """What a simulation gives: the ranks' results, who went on when, and the clock at the end."""

    results: list[Any]
    schedule: list[int] = field(repr=False)
    seconds: float


def die() -> None:
    """End the calling simulated rank with all its tasks, as ``kill -9`` would end a real one."""
    me = context.current()
    assert isinstance(me.waiter, SimWaiter), "die() is for simulated ranks"
    me.waiter.scheduler.end_rank(me.rank)
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
    _raise_first(scheduler)
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
    scheduler = Scheduler(seed)
    for rank in range(world_size):
        scheduler.add(_program(scheduler, rank, world_size, segment, fn, args, strict))
    scheduler.run()
    segment.close()
    return scheduler


def _program(
    scheduler: Scheduler,
    rank: int,
    world_size: int,
    segment: Segment,
    fn: Callable[..., Any],
    args: tuple,
    strict: bool | None,
) -> Task:
    """The task that runs ``fn`` as ``rank``."""

    def body() -> Any:
        try:
            with context.attach(place):
                result = fn(*args)
                place.end()
                return result
        except BaseException as error:
            cause = f"{type(error).__name__}: {error}"
            segment.publish_failure(rank, cause, tracebacks.format_exc())
            raise

    task = Task(rank, "", body)
    place = context.Rank(rank, world_size, rank, world_size, SimWaiter(scheduler, task))
    task.place = place
    place.slots[JOB_SLOT] = segment
    if strict is not None:
        place.slots[STRICT_SLOT] = strict
    return task


def _raise_first(scheduler: Scheduler) -> None:
    """Raise the error of the rank that the others failed for, if any; a rank that cannot go on, or
    has lost another one, fails for a third one's error."""
    failed = [t for t in scheduler.tasks if t.error is not None] + scheduler.broken
    if not failed:
        return
    first = min(
        failed, key=lambda t: (isinstance(t.error, PeerFailed), isinstance(t.error, Deadlock))
    )
    others = "".join(f"\n  also {t.where()}: {t.error}" for t in failed if t is not first)
    if isinstance(first.error, Deadlock):
        raise first.error
    raise LaunchError(f"simulated {first.where()} failed:\n{first.text}{others}") from first.error
