"""What belongs to a rank and to a thread, and the one place where a rank waits.

One process can host many ranks (the simulator runs them as threads), so nothing of this is a
module-level variable of the parts that use it:

* ``Rank``: state of one rank: its numbers, its job, its way of waiting, and slots where other
  parts keep what is theirs (the default random generator, the default process group ...).
* ``thread``: state of one thread: its rank, the grad mode, the stack of interpreters.

Threads that a program starts by itself belong to the rank of the process (or ``attach`` names one).

Every blocking wait goes through ``wait_until``. Real ranks spin, yield, then sleep in short naps;
simulated ranks hand the baton to their scheduler. Deadlines, peer failure and deadlock reports
live here, and nowhere else. This file knows no tensor, no array and no transport.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from .errors import WaitTimeout

T = TypeVar("T")

# The slot of what a rank's random numbers start from that its program has not seeded.
SEED_SLOT = "context.seed"

# The slot of a rank that is to send the others the same in every run, no times.
REPEATABLE_SLOT = "context.repeatable"

# The slot of what a launcher runs in this process: (words of the command, is it a module, is its
# folder not looked in, the module of another framework's names).
PROGRAM_SLOT = "context.program"

# The slot of who notes, or replaces, numbers that come from a clock or the system: ``(name, value)
# -> value``.
DRAWN_SLOT = "context.drawn"

# The slot of a rank that runs again alone: what it shared with others on the disk, it lets be.
REPLAYED_SLOT = "context.replayed"

# Values of ``thread.mode``: one read tells the gate whether it may take its fast path.
RECORD, PLAIN, SLOW = 0, 1, 2

DEFAULT_TIMEOUT = 1800.0
# A wait with a deadline of at most so many seconds is a probe, which its caller expects to end.
# Longer deadlines are safety nets: ranks that wait for each other with them are in a deadlock.
PROBE_SECONDS = 5.0


class Waiter:
    """How a rank of a real process waits: spin, then yield the processor, then nap.

    ``interrupts`` are functions called while waiting; one that raises ends the wait (this is how
    the death of a peer reaches a rank that waits for it).
    """

    simulated = False
    spins = 200
    yields = 2000
    nap = 0.0002
    look_every = 0.1  # seconds that a wait which blocks leaves its interrupts unasked
    away = 5.0  # who has not looked for so long was stopped itself

    def __init__(self) -> None:
        self.interrupts: list[Callable[[], None]] = []
        # Of the job, where that may stand still (``comm.job.pause``).
        self.clock: Callable[[], float] = time.monotonic

    def now(self) -> float:
        """Seconds on this rank's clock (monotonic; virtual for simulated ranks)."""
        return self.clock()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def start_thread(self, body: Callable[[], None], name: str) -> None:
        """Run ``body`` beside the caller, on a thread that does not keep the process alive."""
        threading.Thread(target=body, name=name, daemon=True).start()

    def wait_until(
        self,
        ready: Callable[[], bool],
        what: Callable[[], str],
        timeout: float | None,
        block: Callable[[float], None] | None = None,
    ) -> None:
        if block is not None:
            self._wait_blocking(ready, what, timeout, block)
            return
        for _ in range(self.spins):
            if ready():
                return
        start = last = self.now()
        deadline = start + (DEFAULT_TIMEOUT if timeout is None else timeout)
        turn = 0
        while not ready():
            turn += 1
            if turn & 15 == 0:
                last, deadline = self._look(start, last, deadline, what)
            if turn < self.yields:
                os.sched_yield()
            else:
                time.sleep(self.nap)

    def _wait_blocking(
        self,
        ready: Callable[[], bool],
        what: Callable[[], str],
        timeout: float | None,
        block: Callable[[float], None],
    ) -> None:
        """As ``wait_until``, but ``block(seconds)`` sleeps until something may have changed."""
        start = last = self.now()
        deadline = start + (DEFAULT_TIMEOUT if timeout is None else timeout)
        while not ready():
            last, deadline = self._look(start, last, deadline, what)
            block(min(self.look_every, max(0.0, deadline - self.now())))

    def _look(
        self, start: float, last: float, deadline: float, what: Callable[[], str]
    ) -> tuple[float, float]:
        """Raise where the wait is to end without its result; else (now, the deadline): time for
        which this process itself was stopped (Ctrl-Z) does not count."""
        now = self.now()
        if now - last > self.away:
            deadline += now - last
        for check in self.interrupts:
            check()
        if now > deadline:
            raise WaitTimeout(
                f"waited {now - start:.1f} s for {what()}; the deadline passed. "
                "Raise timeout= if the peers are only slow."
            )
        return self.now(), deadline


class Rank:
    """State of one rank. ``slots`` holds what other parts keep per rank, by their module name."""

    def __init__(
        self,
        rank: int = 0,
        world_size: int = 1,
        local_rank: int = 0,
        local_world_size: int = 1,
        waiter: Waiter | None = None,
    ) -> None:
        self.rank, self.world_size = rank, world_size
        self.local_rank, self.local_world_size = local_rank, local_world_size
        self.waiter = Waiter() if waiter is None else waiter
        self.slots: dict[str, Any] = {}
        self.fixed_products = False  # products of matrices in one order, whatever a BLAS would do
        self.at_end: list[Callable[[], None]] = []  # what to look after when its program has ended
        self._lock = threading.RLock()

    @property
    def numbers(self) -> tuple[int, int, int, int]:
        """``rank, world_size, local_rank, local_world_size``."""
        return self.rank, self.world_size, self.local_rank, self.local_world_size

    @numbers.setter
    def numbers(self, numbers: tuple[int, int, int, int]) -> None:
        self.rank, self.world_size, self.local_rank, self.local_world_size = numbers

    def slot(self, name: str, make: Callable[[], T]) -> T:
        """The object kept under ``name``, made by ``make()`` the first time."""
        try:
            return self.slots[name]
        except KeyError:
            with self._lock:
                if name not in self.slots:
                    self.slots[name] = make()
                return self.slots[name]

    def end(self) -> None:
        """The program of this rank has ended, well or with an error that is known. Raises what is
        found wrong now."""
        todo, self.at_end = self.at_end, []
        for look_after in todo:
            look_after()


_process_rank = Rank()


_at_start: list[Callable[[], Any]] = []  # filled while modules are imported, then only read


class _Thread(threading.local):
    """State of one thread; every new thread starts in the rank of the process."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Be as a thread that has just started."""
        self.rank: Rank = _process_rank
        self.task: Any = None  # by which the simulator's scheduler knows this thread
        self.grad_enabled = True
        self.inference = False  # only told: inference mode records nothing, like no_grad
        self.anomaly = False
        self.check_nan = True  # under anomaly detection
        self.saving: tuple = ()  # the hooks for saved tensors, innermost last
        self.multithreading = True  # only kept
        self.checkpoint_early_stop = True
        self.saving_refused: str | None = None  # why there may be none
        self.walk: Any = None  # the outermost backward pass that is running
        self.walking: Any = None  # the innermost one
        self.depth = 0  # how many of them run one inside the other
        self.before_write: Callable | None = None  # told of every tensor just before a write
        self.autocast: Any = None  # chooses the types that operations compute in
        self.autocast_depth = 0  # at this depth of backward passes
        self.default_device: Any = None  # of new tensors; None: the host
        self.outer_devices: list[Any] = []  # what it was outside of the blocks that set it
        self.unrepeatable = False  # what this thread sends now need not be the same in every run
        self.stack: list[Any] = []
        self.axes: tuple = ()  # (name, its level) of the named axes, innermost last
        self.inside: Any = None  # the innermost function that grad, vjp or jvp runs now
        self.mode = RECORD
        for setup in _at_start:
            setup()

    def refresh(self) -> None:
        """Recompute ``mode`` after one of the other fields changed."""
        surrounded = self.stack or self.anomaly or self.saving or self.inside is not None
        if surrounded or self.autocast is not None:
            self.mode = SLOW
        else:
            self.mode = RECORD if self.grad_enabled else PLAIN


_load: Callable[[str], Any]  # handed over by the front door

thread = _Thread()


def at_thread_start(setup: Callable[[], Any]) -> None:
    """Run ``setup`` on this thread now, and on every other thread when it first does something
    here. For modules to call while they are imported."""
    _at_start.append(setup)
    setup()


def provide_packages(load: Callable[[str], Any]) -> None:
    """For the front door: how a package is loaded by its name, whatever it is above."""
    global _load
    _load = load


def package(name: str) -> Any:
    """A package that the caller may not import, when a program asks the caller for its names."""
    return _load(name)


def elsewhere(fn: Callable[[], T]) -> T:
    """Call ``fn`` on a thread of its own that goes on from the state of this one, and wait for it:
    for recursion that is deeper than one thread's stack."""
    state = dict(thread.__dict__)
    results: list[T] = []
    errors: list[BaseException] = []

    def body() -> None:
        thread.__dict__.update(state)
        try:
            results.append(fn())
        except BaseException as error:
            errors.append(error)

    other = threading.Thread(target=body, daemon=True)
    other.start()
    other.join()
    if errors:
        raise errors[0]
    return results[0]


def begin_anew() -> None:
    """Let a process that was forked begin as one that was started afresh does: the settings of its
    thread, and of its rank, are those of the start. What the parent had is kept, out of reach: to
    let go of a group or a pool would be to end it, which is the parent's to do."""
    thread.begin()
    me = thread.rank
    me.rank = me.local_rank = 0
    me.world_size = me.local_world_size = 1
    me.fixed_products = False
    me.waiter, me.slots = Waiter(), {"context.inherited": (me.waiter, me.slots)}


def current() -> Rank:
    """The rank that the calling thread belongs to."""
    return thread.rank


@contextmanager
def attach(rank: Rank):
    """Make the calling thread belong to ``rank`` while the block runs."""
    before, thread.rank = thread.rank, rank
    try:
        yield rank
    finally:
        thread.rank = before


@contextmanager
def unrepeatable() -> Iterator[None]:
    """What the block sends to other ranks has names or times of this run in it: recordings of two
    runs do not compare it."""
    before, thread.unrepeatable = thread.unrepeatable, True
    try:
        yield
    finally:
        thread.unrepeatable = before


@contextmanager
def interpreter(interp: object):
    """Push an interpreter on this thread's stack while the block runs."""
    thread.stack.append(interp)
    thread.refresh()
    try:
        yield interp
    finally:
        thread.stack.pop()
        thread.refresh()


@contextmanager
def outside_of(interp: object) -> Iterator[None]:
    """Run the block as if outside of that of an interpreter of this thread's stack."""
    before = thread.stack
    thread.stack = before[: before.index(interp)]
    thread.refresh()
    try:
        yield
    finally:
        thread.stack = before
        thread.refresh()


def wait_until(
    ready: Callable[[], bool],
    what: Callable[[], str],
    timeout: float | None = None,
    block: Callable[[float], None] | None = None,
) -> None:
    """Block until ``ready()`` is true.

    ``block(seconds)`` sleeps at most so long, less when something may have changed: for what a
    rank's own threads or a descriptor bring, where looking again and again would take their time
    (simulated ranks need none of it). ``ready`` must only look then, and do nothing: whichever
    simulated thread comes by asks it. ``what`` describes what is awaited (called only for a
    message). ``timeout`` is in seconds; ``None`` means ``DEFAULT_TIMEOUT``. Raises ``WaitTimeout``
    at the deadline, ``PeerFailed`` when a peer is known to be dead, ``Deadlock`` when no simulated
    rank can go on.
    """
    thread.rank.waiter.wait_until(ready, what, timeout, block)


def start_thread(body: Callable[[], None], name: str) -> None:
    """Run ``body`` on a new thread of the calling thread's rank (simulated: one that takes turns
    with all others)."""
    rank = thread.rank

    def run() -> None:
        with attach(rank):
            body()

    rank.waiter.start_thread(run, name)


def drawn(name: str, value: int) -> int:
    """A number from a clock or the system's randomness, on which what a program does depends: of a
    rank that is replayed, as it was when recorded. ``name``: what it is for."""
    told = thread.rank.slots.get(DRAWN_SLOT)
    return value if told is None else told(name, value)


def now() -> float:
    """Seconds on the calling rank's clock."""
    return thread.rank.waiter.now()


def sleep(seconds: float) -> None:
    """Sleep on the calling rank's clock."""
    thread.rank.waiter.sleep(seconds)
