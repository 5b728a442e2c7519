"""A simulated cluster: N ranks as threads of one process, one at a time, under a seeded scheduler.

Two kinds. In ``simulate`` ranks move data through the shared-memory transport over a private
segment: a simulation runs the very code that real ranks run; what is replaced is the waiting
(``scheduler``). In ``run_cluster`` they have a transport of their own (``transport``), with a model
of hosts and links and with faults, that carries hundreds of ranks. Either way the same seed gives
the same schedule, and different seeds try different interleavings; random numbers of a rank start
from the seed and its number. Time is virtual.
When nobody can go on and time cannot help, every rank raises ``Deadlock`` at once, with what each
one waits for (real ranks would wait for their deadline).

Knows ranks and the segment; no arrays, no verbs.
"""

from __future__ import annotations

import random
import traceback as tracebacks
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .... import context
from ....errors import ConfigError, Deadlock, LaunchError, PeerFailed
from ...job.segment import JOB_SLOT, Segment
from ...job.worker_env import STRICT_SLOT
from .fabric import Cluster, Fabric
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
        place = context.Rank(rank, world_size, rank, world_size)
        place.slots[JOB_SLOT] = segment
        if strict is not None:
            place.slots[STRICT_SLOT] = strict
        _add(scheduler, seed, place, lambda: fn(*args), segment.publish_failure)

    def killed(rank: int) -> None:
        if scheduler.tasks[rank].killed:  # perhaps before its program has begun
            segment.publish_failure(rank, "killed")

    scheduler.when_ended.append(killed)
    scheduler.run()
    segment.close()
    return scheduler


def run_cluster(
    fn: Callable[[], Any],
    cluster: Cluster,
    seed: int = 0,
    set_up: Callable[[Scheduler, Fabric], None] = lambda scheduler, fabric: None,
) -> tuple[Scheduler, Fabric]:
    """Run ``fn()`` on all ranks of ``cluster``. As from ``run_tasks``, errors are found in the
    tasks. ``set_up``: called before anything runs, for whom the scheduler is to tell what."""
    scheduler = Scheduler(seed)
    fabric = Fabric(scheduler, cluster)
    set_up(scheduler, fabric)
    hosts = fabric.network.hosts
    for rank in range(cluster.num_ranks):
        mine = [r for r in range(cluster.num_ranks) if hosts[r] == hosts[rank]]
        place = context.Rank(rank, cluster.num_ranks, mine.index(rank), len(mine))
        _add(scheduler, seed, place, fn, fabric.fail)
    scheduler.run()
    return scheduler, fabric


def _add(
    scheduler: Scheduler,
    seed: int,
    place: context.Rank,
    fn: Callable[[], Any],
    publish: Callable[[int, str, str], None],
) -> None:
    """Add the task that runs ``fn`` as the rank of ``place``."""
    rank = place.rank
    place.slots[context.SEED_SLOT] = random.Random(f"{seed} {rank}").getrandbits(53)

    def body() -> Any:
        try:
            with context.attach(place):
                result = _to_the_end(fn)
                if waiter.refused is not None:  # perhaps nobody has heard of it
                    raise waiter.refused
                place.end()
                if JOB_SLOT in place.slots:
                    place.slots[JOB_SLOT].slot(place.rank).state = "finished"
                return result
        except BaseException as error:
            publish(rank, cause_of(error), tracebacks.format_exc())
            raise

    task = Task(rank, "", body)
    place.waiter = waiter = SimWaiter(scheduler, task)
    task.place = place
    scheduler.add(task)


def _to_the_end(fn: Callable[[], Any]) -> Any:
    """Call it. That it exits with code 0 is an end like any other."""
    try:
        return fn()
    except SystemExit as stop:
        if stop.code not in (None, 0):
            raise
        return None


def cause_of(error: BaseException) -> str:
    """What a rank failed of, in a line for the others."""
    return str(error) if isinstance(error, Killed) else f"{type(error).__name__}: {error}"


def first_failed(scheduler: Scheduler) -> tuple[Task | None, list[Task]]:
    """The task that the others failed for, and all that failed: one that cannot go on, or has lost
    another one, fails for a third one's error."""
    failed = [t for t in scheduler.tasks if t.error is not None] + scheduler.broken
    order = [(isinstance(t.error, PeerFailed), isinstance(t.error, Deadlock)) for t in failed]
    return (failed[order.index(min(order))] if failed else None), failed


def _raise_first(scheduler: Scheduler) -> None:
    first, failed = first_failed(scheduler)
    if first is None:
        return
    others = "".join(f"\n  also {t.where()}: {t.error}" for t in failed if t is not first)
    if isinstance(first.error, Deadlock):
        raise first.error
    raise LaunchError(f"simulated {first.where()} failed:\n{first.text}{others}") from first.error
