"""Workers of which one is killed in the middle of what all of them do, and what the others find.

    try_kills(plan.size, seed, work, 3)

``work()`` is what every worker does. The victim dies at the ``at``-th message (from 1) that it
sends or receives in it, at the latest when its work is done. Every survivor either ends its work or
fails with an error that names the victim, soon; then it can still be called, and in the end it
holds nothing.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from typing import Any

from disttrain import context, rpc
from disttrain.comm.transports import sim
from disttrain.errors import Deadlock
from disttrain.rpc.calls.current import current_agent
from disttrain.rpc.messages.simulated import Faults, network
from support.cases.rpc_programs import name, until

SECONDS = 2.0  # in which a caller learns of it


class Killing:
    """One run. ``at`` None: nobody is killed, and ``messages`` counts what the victim exchanges."""

    def __init__(
        self,
        size: int,
        victim: int,
        at: int | None,
        work: Callable[[], Any],
        prepare: Callable[[], Any] = lambda: None,
        left: Callable[[], list] = list,
    ) -> None:
        self.size, self.victim, self.at = size, victim, at
        self.work, self.prepare, self.left = work, prepare, left
        self.messages = 0
        self.killed_at: float | None = None
        self.outcomes: dict[int, str | None] = {}
        self._came: dict[str, set[int]] = {}

    def __str__(self) -> str:
        return f"worker {self.victim} of {self.size} killed at message {self.at}"

    def follow(self) -> None:
        """A worker's life."""
        me = context.current().rank
        self.prepare()
        rpc.init_rpc(name(me))
        self._meet("begin", self.size)
        if me == 0:
            self._arrange()
        self._meet("work", self.size)
        self._work(me)
        if me == self.victim and self.at is not None:
            sim.die()  # it has exchanged fewer messages than that
        self._meet("worked", self._expected())
        if self.at is None:
            if me == 0:
                self.messages = network().messages.get(self.victim, 0) - self.messages
        else:
            until(lambda: self.killed_at is not None, "the victim's end")
            self._still_usable(me)
        self._meet("called", self._expected())
        self._hold_nothing()
        self._meet("empty", self._expected())
        rpc.shutdown(graceful=self.at is None)

    def _hold_nothing(self) -> None:
        """Wait until this worker has nothing left; what it has is looked at again and again.
        (Errors and the frames that they passed through are cycles, which may keep references.)"""
        end = context.now() + SECONDS
        while self._holds():
            gc.collect()
            assert context.now() < end, f"still there: {self._holds()}"
            context.sleep(SECONDS / 20)

    def _expected(self) -> int:
        return self.size if self.at is None else self.size - 1

    def _arrange(self) -> None:
        net = network()
        before = net.messages.get(self.victim, 0)
        if self.at is None:
            self.messages = before
        else:

            def note(rank: int) -> None:
                if rank == self.victim and self.killed_at is None:
                    self.killed_at = net.scheduler.clock

            net.scheduler.when_ended.append(note)
            net.ask_for(Faults(late=0.1, kill={self.victim: before + self.at}))

    def _work(self, me: int) -> None:
        self.outcomes[me] = None
        try:
            self.work()
        except Exception as error:
            if self.killed_at is None:
                raise
            assert f"rank {self.victim} failed" in str(error), f"not named: {error!r}"
            late = context.now() - self.killed_at
            assert late <= SECONDS, f"after {late} s: {error!r}"
            self.outcomes[me] = repr(error)  # the error itself would keep what its frames keep

    def _still_usable(self, me: int) -> None:
        for worker in range(self.size):
            if worker != self.victim:
                assert rpc.rpc_sync(name(worker), int, (f"{worker}",)) == worker

    def _holds(self) -> list:
        """What this worker still has that it should not."""
        agent = current_agent()
        calls = [future.describe() for future in list(agent.in_flight.values())]
        asked = [f"a request of {r.caller.name}" for r in list(agent.handling)]
        return calls + asked + self.left()

    def _meet(self, where: str, size: int) -> None:
        """Wait for the others by no message of theirs."""
        came = self._came.setdefault(where, set())
        came.add(context.current().rank)
        until(lambda: len(came) >= size, lambda: f"the others at {where}")


def try_all(size: int, seed: int, work: Callable[[], Any], **more: Any) -> None:
    """Run ``work`` on simulated workers, of which nobody is killed: it ends well, and in the end
    nobody holds anything. More arguments are those of ``Killing``."""
    _run(Killing(size, 0, None, work, **more), seed)


def try_kills(size: int, seed: int, work: Callable[[], Any], times: int, **more: Any) -> None:
    """Run ``work`` on simulated workers, ``times`` times with one of them killed somewhere; more
    arguments are those of ``Killing``. Raises what went wrong with a survivor."""
    rng = random.Random(seed)
    victim = rng.randrange(size)
    faultless = Killing(size, victim, None, work, **more)
    _run(faultless, seed)
    for _ in range(times):
        killing = Killing(size, victim, rng.randint(1, faultless.messages + 1), work, **more)
        _run(killing, seed)
        assert killing.killed_at is not None


def _run(killing: Killing, seed: int) -> None:
    scheduler = sim.run_tasks(killing.follow, killing.size, seed)
    failed = [
        task
        for task in scheduler.tasks + scheduler.broken
        if task.error is not None and (killing.at is None or task.rank != killing.victim)
    ]
    for task in sorted(failed, key=lambda task: isinstance(task.error, Deadlock)):
        raise AssertionError(f"seed {seed}, {killing}: {task.where()}\n{task.text}")
