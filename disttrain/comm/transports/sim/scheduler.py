"""Tasks that run one at a time, in an order drawn from a seed, on a clock that is virtual.

A task is a thread of a simulated rank: its program, or one that ``context.start_thread`` has
started for it. Whoever waits hands the baton on; who goes on is drawn from the seed among those
that can, and so is when an *event* (a message in flight) happens, which is no task's. The clock
moves only when nobody can go on, up to the next wake-up, event or deadline. When time cannot help
either, every task raises ``Deadlock``, with what each one waits for.

A rank lives as long as its program does: with that, its other tasks end at their next wait, as
daemon threads end with their process. So tasks that wait for work keep no simulation from ending.

Knows threads and waiting; no arrays, no segment, no messages.
"""

from __future__ import annotations

import random
import threading
import time
import traceback as tracebacks
from collections.abc import Callable
from typing import Any

from .... import context
from ....errors import ConfigError, Deadlock, RankGone, WaitTimeout

# A rank with a transport also moves its share of what is in flight while it waits, piece by piece:
# one round in which nobody's wait ends does not prove that nobody can go on, so many in a row do.
ROUNDS_IN_VAIN = 2000
# Without one, a condition that waits itself (for a store's answer) may have looked at what others
# have changed meanwhile.
_ROUNDS_PLAIN = 3
_MANY_THREADS = 64


class Killed(RankGone):
    """Ends a task at once; no program catches it by accident."""


class _Wait:
    """What a task waits for. ``probe``: its condition where anybody may ask for it, as asking
    changes nothing; then no thread needs to be woken to find that it still waits. ``pump``: where
    that is so, ``pump.pending()`` says whether ``pump(0)`` would move something that it awaits.
    ``parks``: whoever makes it come true calls ``Scheduler.wake``, so nobody asks before that."""

    __slots__ = ("came", "deadline", "limit", "parks", "probe", "pump", "what")

    def __init__(
        self,
        what: Callable[[], str],
        limit: float,
        deadline: float,
        ready: Callable[[], bool],
        block: Callable[[float], None] | None,
    ) -> None:
        self.what, self.limit, self.deadline = what, limit, deadline
        self.probe = None if block is None else ready
        self.pump: Any = block if hasattr(block, "pending") else None
        self.parks = block is until_woken
        self.came = False  # the one who asked has seen it


def until_woken(seconds: float) -> None:
    """As ``block=`` of a wait: ``Scheduler.wake`` tells when to look again."""


class Task:
    """A thread of a simulated rank; ``name`` is empty for its program."""

    def __init__(self, rank: int, name: str, body: Callable[[], Any]) -> None:
        self.rank, self.name, self.body = rank, name, body
        self.place: context.Rank | None = None  # the state of its rank
        self.baton = threading.Lock()
        self.baton.acquire()
        self.wait: _Wait | None = None
        self.wake_at: float | None = None
        self.done = self.killed = self.parked = False
        self.why = "killed"
        self.thread: threading.Thread | None = None
        self.stamp = 0.0  # of its processor time, when it last came back from a wait
        self.result: Any = None
        self.error: BaseException | None = None
        self.text = ""

    def where(self) -> str:
        """Its rank and name."""
        return f"rank {self.rank} ({self.name})" if self.name else f"rank {self.rank}"

    def __str__(self) -> str:
        return f"{self.where()}: {self.wait.what() if self.wait is not None else 'runs'}"


class _Event:
    """Something that happens at ``at`` or later, in whatever order with what is due then, too."""

    __slots__ = ("action", "at")

    def __init__(self, at: float, action: Callable[[], None]) -> None:
        self.at, self.action = at, action


class Scheduler:
    """Hands one baton around. Only the thread that holds it runs, so nothing here needs a lock."""

    def __init__(self, seed: int) -> None:
        self.tasks: list[Task] = []  # the ranks' programs
        self.random = random.Random(seed)
        self.schedule: list[int] = []
        self.clock = 0.0
        self.running: Task | None = None  # who holds the baton, while none is being chosen
        self.failed = False
        self.deadlock = ""
        self.broken: list[Task] = []  # other tasks that an exception has ended
        self.when_ended: list[Callable[[int], None]] = []  # told of every rank that ends
        self.slots: dict[str, Any] = {}  # what other parts keep for the whole simulation
        self.lost = False  # something will never come, so whoever waits for it waits to the end
        # (rank, processor seconds, is it a call of a verb) -> how long that lasts; None: no time
        self.stopwatch: Callable[[int, float, bool], float] | None = None
        self.when_entered: Callable[[int], None] | None = None  # told when another rank goes on
        # (rank, for what, from, to): told of waits of programs that nobody wakes, if they take time
        self.when_waited: Callable[[int, str, float, float], None] | None = None
        self.at_deadlock: Callable[[], None] | None = None
        # asked when nobody can go on and nothing is on its way (but that somebody sleeps): whether
        # it has changed that
        self.at_rest: Callable[[bool], bool] | None = None
        # rank -> the turns, from 1 on, in which its program has called a verb; None: nobody asks
        self.called_in: dict[int, list[int]] | None = None
        self.stop_at = 0  # the turn whose task is to call ``at_stop`` when it goes on
        self.at_stop: Callable[[Task], None] | None = None
        self._entered = -1
        self._parked: dict[int, dict[Task, None]] = {}
        self._alive: list[Task] = []
        self._up: dict[Task, None] = {}  # those of them that are not parked, in an order
        self._events: list[_Event] = []
        self._idle: set[Task] = set()  # who has looked in vain since anything moved
        self._rounds = 0
        self.ended: set[int] = set()  # ranks that do nothing any more
        self._threads: list[threading.Thread] = []
        self._over = threading.Event()

    @property
    def alive(self) -> list[Task]:
        """The tasks that have not ended."""
        return list(self._alive)

    def add(self, task: Task) -> None:
        """Let ``task`` take turns with the others from now on."""
        task.killed = task.rank in self.ended  # begun by one that has not noticed yet
        if not task.name:
            self.tasks.append(task)
        self._alive.append(task)
        self._up[task] = None
        if len(self._threads) > _MANY_THREADS:
            self._threads = [t for t in self._threads if t.is_alive()]
        name = task.name or f"rank-{task.rank}"
        thread = threading.Thread(target=self._run, args=(task,), name=name, daemon=True)
        self._threads.append(thread)
        task.thread = thread
        thread.start()

    def run(self) -> None:
        """Go on until every task has ended."""
        self._choose().baton.release()
        self._over.wait()
        for thread in self._threads:
            thread.join()

    def pass_on(self, task: Task) -> None:
        """Let somebody go on; return when the baton comes back to ``task``."""
        following = self._choose()
        if following is not task:
            following.baton.release()
            task.baton.acquire()
        self._enter(task)

    def _enter(self, task: Task) -> None:
        """``task`` has the baton."""
        self.running = task
        if self.when_entered is not None and self._entered != task.rank:
            self._entered = task.rank
            self.when_entered(task.rank)
        if self.at_stop is not None and len(self.schedule) == self.stop_at:
            self.at_stop(task)

    def moved(self) -> None:
        """Something has changed: who looked in vain may look again."""
        self._idle.clear()
        self._rounds = 0

    def look_in_vain(self, task: Task) -> None:
        """``task`` has found that it must still wait."""
        self._idle.add(task)
        self.pass_on(task)

    def park(self, task: Task) -> None:
        """``task`` waits for ``wake``, its deadline, or a failure."""
        task.parked = True
        self._up.pop(task, None)
        self._parked.setdefault(task.rank, {})[task] = None
        self.pass_on(task)

    def wake(self, rank: int) -> None:
        """Let the tasks of ``rank`` look again."""
        for task in self._parked.pop(rank, ()):
            task.parked = False
            self._up[task] = None

    def wake_all(self) -> None:
        for rank in list(self._parked):
            self.wake(rank)

    def later(self, delay: float, action: Callable[[], None]) -> None:
        """Let ``action`` happen when the clock has gone on by ``delay``, or some time after; it
        must not wait."""
        self._events.append(_Event(self.clock + delay, action))

    def end_rank(self, rank: int, why: str = "killed") -> None:
        """End all tasks of ``rank`` at their next wait; they do nothing any more."""
        for task in self._alive:
            if task.rank == rank and not task.killed:
                task.killed, task.why = True, why
        if rank not in self.ended:
            self.ended.add(rank)
            for tell in self.when_ended:
                tell(rank)
        self.wake(rank)
        self.moved()

    def _run(self, task: Task) -> None:
        task.baton.acquire()
        context.thread.task = task
        task.stamp = time.thread_time()
        try:
            self._enter(task)
            if not task.killed:
                task.result = task.body()
        except BaseException as error:
            task.error, task.text = error, tracebacks.format_exc()
            if task.name and not isinstance(error, (Killed, Deadlock)):
                self.broken.append(task)
        finally:
            self._finish(task)

    def _finish(self, task: Task) -> None:
        """``task`` has ended: the baton goes on for good."""
        task.done = True
        self._alive.remove(task)
        self._up.pop(task, None)
        if not task.name:
            if task.error is not None or task.killed:
                self.failed = True
                self.wake_all()
            self.end_rank(task.rank)
        self.moved()
        if self._alive:
            self._choose().baton.release()
        else:
            self._over.set()

    def _choose(self) -> Task:
        """Who goes on; events that happen before that have happened."""
        self.running = None
        while True:
            clock = self.clock
            awake = [t for t in self._up if t.killed or t.wake_at is None or t.wake_at <= clock]
            due = [event for event in self._events if event.at <= clock]
            chosen = self._draw([t for t in awake if t not in self._idle], due)
            if isinstance(chosen, Task):
                self.schedule.append(chosen.rank)
                return chosen
            if chosen is not None:
                self._events.remove(chosen)
                chosen.action()
                self.moved()
            elif not (awake and self._again(awake)):
                self._let_time_pass()

    def _draw(self, hopeful: list[Task], due: list[_Event]) -> Task | _Event | None:
        """One of those that can go on, if any can."""
        while hopeful or due:
            at = self.random.randrange(len(hopeful) + len(due))
            if at >= len(hopeful):
                return due[at - len(hopeful)]
            task = hopeful[at]
            if self._may_go_on(task):
                return task
            self._idle.add(task)
            hopeful[at] = hopeful[-1]
            hopeful.pop()
        return None

    def _may_go_on(self, task: Task) -> bool:
        """Is there anything for it to do, as far as one sees without waking it?"""
        wait = task.wait
        if wait is None or wait.probe is None or task.killed or self.deadlock:
            return True
        if self.clock >= wait.deadline or task.place is None:
            return True
        if self.failed and (task.place.waiter.interrupts or wait.parks):
            return True
        with context.attach(task.place):
            try:
                wait.came = wait.probe()
            except Exception:  # its own to raise
                return True
        return wait.came or (wait.pump is not None and wait.pump.pending())

    def _again(self, awake: list[Task]) -> bool:
        """All have looked in vain. Is it worth another round?"""
        if all(t.wait is not None and t.wait.probe is not None for t in awake):
            return False
        self._rounds += 1
        if self._rounds > (ROUNDS_IN_VAIN if any(map(_moves_pieces, awake)) else _ROUNDS_PLAIN):
            return False
        self._idle.clear()
        return True

    def _let_time_pass(self) -> None:
        """Nobody can go on now: on to when somebody can, or tell everybody that nobody will."""
        self.moved()
        alive, clock = self._alive, self.clock
        times = [t.wake_at for t in alive if t.wake_at is not None and t.wake_at > clock]
        if self.at_rest is not None and not self._events and self.at_rest(bool(times)):
            return
        times += [event.at for event in self._events]
        waits = [t.wait for t in alive if t.wait is not None]
        certain = bool(times) or self.lost
        times += [w.deadline for w in waits if certain or w.limit <= context.PROBE_SECONDS]
        if times:
            self.clock = clock = max(clock, min(times))
            for task in alive:
                if task.parked and task.wait is not None and task.wait.deadline <= clock:
                    self.wake(task.rank)
            return
        lines = [f"  {t}" for t in sorted(alive, key=lambda t: t.rank)]
        ended = [t.rank for t in self.tasks if t.done]
        if ended:
            lines.append(f"  ended already: rank{'s' if len(ended) > 1 else ''} "
                         + ", ".join(map(str, ended)))  # fmt: skip
        self.deadlock = "no simulated rank can go on:\n" + "\n".join(lines)
        if self.at_deadlock is not None:
            self.at_deadlock()
        self.wake_all()


class SimWaiter(context.Waiter):
    """How the tasks of a simulated rank wait."""

    simulated = True

    def __init__(self, scheduler: Scheduler, program: Task) -> None:
        super().__init__()
        self.scheduler, self._program = scheduler, program
        # As ``interrupts``, of parts that move nothing while they wait.
        self.checks: list[Callable[[], None]] = []
        self.refused: ConfigError | None = None  # what a thread of the program asked for in vain

    @property
    def rank(self) -> int:
        """In the cluster, whatever the program calls itself."""
        return self._program.rank

    def charge(self, is_call: bool = False) -> None:
        """Let the clock go on by what this task has computed since it last waited."""
        scheduler, task = self.scheduler, self._task()
        if is_call and scheduler.called_in is not None and not task.name:
            scheduler.called_in.setdefault(task.rank, []).append(len(scheduler.schedule))
        if scheduler.stopwatch is None:
            return
        spent = time.thread_time() - task.stamp
        seconds = scheduler.stopwatch(task.rank, spent, is_call)
        if seconds > 0.0:
            self._sleep(task, seconds)
        task.stamp = time.thread_time()

    def now(self) -> float:
        return self.scheduler.clock

    def start_thread(self, body: Callable[[], None], name: str) -> None:
        task = Task(self._program.rank, name, body)
        task.place = self._program.place
        self.scheduler.add(task)

    def sleep(self, seconds: float) -> None:
        self.charge()
        task, start = self._task(), self.scheduler.clock
        self._sleep(task, seconds)
        self._tell(task, lambda: "sleep", start)

    def _sleep(self, task: Task, seconds: float) -> None:
        scheduler = self.scheduler
        outer, task.wait = task.wait, None
        scheduler.moved()
        task.wake_at = scheduler.clock + max(seconds, 0.0)
        while scheduler.clock < task.wake_at and not task.killed:
            scheduler.pass_on(task)
        task.wake_at, task.wait = None, outer
        _check(task)

    def wait_until(
        self,
        ready: Callable[[], bool],
        what: Callable[[], str],
        timeout: float | None,
        block: Callable[[float], None] | None = None,
    ) -> None:
        self.charge()
        task, clock = self._task(), self.scheduler.clock
        limit = context.DEFAULT_TIMEOUT if timeout is None else timeout
        outer = task.wait  # a condition may wait, too: for a callback's, or a store's answer
        if outer is None:  # what it did since its last wait may be what others wait for
            self.scheduler.moved()
        task.wait = _Wait(what, limit, clock + limit, ready, block)
        try:
            _check(task)
            self._wait(task, task.wait, ready, clock)
            task.wait = None
            if outer is None and block is None:  # a condition may have done something, too
                self.scheduler.moved()
            self.scheduler.pass_on(task)
            _check(task)
        finally:
            if outer is None and block is not until_woken:
                self._tell(task, what, clock)
            task.wait = outer
            task.stamp = time.thread_time()

    def _tell(self, task: Task, what: Callable[[], str], start: float) -> None:
        """``task`` has waited since ``start``."""
        scheduler = self.scheduler
        if scheduler.when_waited is not None and not task.name and scheduler.clock > start:
            scheduler.when_waited(task.rank, what(), start, scheduler.clock)

    def _wait(self, task: Task, wait: _Wait, ready: Callable[[], bool], start: float) -> None:
        scheduler = self.scheduler
        while not (wait.came or ready()):
            if wait.pump is not None and wait.pump.pending():
                wait.pump(0.0)
                scheduler.moved()
                continue
            if scheduler.deadlock:
                raise Deadlock(scheduler.deadlock)
            if scheduler.failed:
                for check in (*self.interrupts, *self.checks):
                    check()
            if scheduler.clock >= wait.deadline and (scheduler.clock > start or wait.limit <= 0):
                raise WaitTimeout(f"waited {wait.limit:g} s for {wait.what()}; the deadline passed")
            if wait.parks:
                scheduler.park(task)
            else:
                scheduler.look_in_vain(task)
            _check(task)

    def _task(self) -> Task:
        """The caller's: that of its thread."""
        task: Task | None = context.thread.task
        if task is None:
            self.refused = ConfigError(
                f"rank {self.rank}: thread {threading.current_thread().name!r}, which the program "
                "has started, calls what waits for other ranks; on a simulated cluster only the "
                "thread that runs the program may. Call it there, or run with processes"
            )
            raise self.refused
        return task


def _moves_pieces(task: Task) -> bool:
    """May its looking again let others go on? (A transport interrupts waits when a peer failed.)"""
    pure = task.wait is not None and task.wait.probe is not None
    return not pure and task.place is not None and bool(task.place.waiter.interrupts)


def _check(task: Task) -> None:
    if task.killed:
        raise Killed(task.why)
