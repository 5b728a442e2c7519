"""What may go wrong on one rank of a job, where, and what all others must see of it.

``KINDS`` is the specification: docs/failures.md is made from it, and ``job_faults`` holds every
transport to it. ``take_part`` is the program of every rank, real or simulated.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

import disttrain as dt
from disttrain import distributed as dist
from disttrain.comm.transports.sim import die
from disttrain.errors import CollectiveMismatch, CommError, Deadlock, GroupRevoked, PeerFailed
from injections import memory_limit

SMALL, LARGE = 64, 100_000
ROUNDS = 2  # of each verb before the fault
WORDS = "struck by the matrix"
LIMIT = 32 << 20  # bytes that one rank may have more
LOOKED_AT = 0.3  # seconds in which a launcher has looked at everybody


@dataclass(frozen=True)
class Kind:
    """``sees``: the error that the others get, "" for none; ``cause``: what its text must say;
    ``within``: seconds; ``after``: what they can do then; ``code``: the job's exit code where they
    do nothing but end of it. ``transports``: where it can be tried ("" for all)."""

    title: str
    sees: str
    cause: str
    within: float
    after: str
    code: int
    transports: tuple[str, ...] = ("shm", "env", "tcp", "mpi", "mpiexec", "sim", "cluster")
    points: tuple[str, ...] = ()
    between: float | None = None
    is_end_under_mpiexec: bool = False
    only_ended: tuple[str, ...] = ()

    def seen_on(self, transport: str) -> tuple[str, str]:
        """The errors that others get there, and what they say."""
        if transport in self.only_ended:
            return f"{self.sees}|CollectiveMismatch", f"{self.cause}|has ended its program"
        return self.sees, self.cause

    def seconds(self, transport: str) -> float:
        """Within which the others hear of it."""
        far = transport in BETWEEN_HOSTS and self.between is not None
        return self.between if far and self.between is not None else self.within


BETWEEN_HOSTS = ("tcp", "net")
TOLD_LATER = (*BETWEEN_HOSTS, "mpi")  # others than the first may hear of its shrink() instead
CALLS = ("small", "large", "barrier", "message", "pair", "async")
SHRINK, SAME, AGAIN, NOTHING = "shrink()", "the same group", "init again", "as if nothing was"
REAL = ("shm", "env", "tcp", "mpi", "mpiexec")
ALL = (*REAL, "net", "sim", "cluster")
KINDS = {
    "raises": Kind("raises", "PeerFailed", f"ValueError: {WORDS}", 0.5, SHRINK, 1, ALL),
    "exits_0": Kind(
        "ends its program early with exit code 0",
        "CollectiveMismatch|PeerFailed|Deadlock",
        "has ended|left the group|ended already: rank {victim}|process is gone|link has ended",
        2.0, AGAIN, 1, between=3.5,
    ),
    "vanishes": Kind(
        "ends with exit code 0 in the middle (os._exit)",
        "PeerFailed", "its process is gone|exit code 0|link has ended", 0.5, SHRINK, 1,
        (*REAL, "net"), only_ended=("mpi", "mpiexec"),
    ),
    "exits_3": Kind(
        "ends with exit code 3",
        "PeerFailed", "exit code 3|SystemExit: 3|process is gone|link has ended", 0.5, SHRINK, 3,
        ALL, between=3.5, only_ended=("net", "mpiexec"),
    ),
    "killed": Kind(
        "is killed (SIGKILL)",
        "PeerFailed", "SIGKILL|killed|process is gone|link has ended", 0.5, SHRINK, 137, ALL,
        is_end_under_mpiexec=True,
    ),
    "stopped": Kind(
        "is stopped (SIGSTOP)",
        "PeerFailed", r"state T \(stopped\)", 3.0, SHRINK, 147, ("shm", "env", "mpi"),
    ),
    "segfaults": Kind(
        "segfaults", "PeerFailed", "SIGSEGV|process is gone|link has ended", 0.5, SHRINK, 139, REAL,
        is_end_under_mpiexec=True,
    ),
    "no_memory": Kind(
        "runs out of memory (MemoryError)", "PeerFailed", "MemoryError", 0.5, SHRINK, 1,
    ),
    "over_limit": Kind(
        "runs out of memory (the limit of its control group)", "PeerFailed",
        "out of memory: .*limit 32 MiB|process is gone|link has ended", 0.5, SHRINK, 137, REAL,
        is_end_under_mpiexec=True,
    ),
    "no_network": Kind(
        "loses its network (a cut link)", "PeerFailed",
        "rank {victim} failed: its link has ended", 5.0, SHRINK, 1, ("net", "cluster"),
    ),
    "one_way": Kind(
        "is heard by nobody, but hears (a one-way partition)", "PeerFailed",
        "rank {victim} failed: its link has ended", 5.0, SHRINK, 1, ("net",),
    ),
    "other_call": Kind(
        "makes another call", "CollectiveMismatch", r"rank {victim}", 0.5, SAME, 1,
        points=("small", "large", "barrier", "async"),
    ),
    "fewer_calls": Kind(
        "leaves out a call", "CollectiveMismatch", r"rank {victim}", 1.0, AGAIN, 1,
        points=("small", "large", "barrier"), between=3.5,
    ),
    "crossed": Kind(
        "calls two groups in crossed order", "CollectiveMismatch|Deadlock",
        "wait for each other|no simulated rank can go on", 1.0, AGAIN, 1, points=("pair",),
        between=3.5,
    ),
    "never_waits": Kind(
        "never waits for its async work", "", "", 0.0, NOTHING, 0, points=("async",),
    ),
    "leaves_pending": Kind(
        "destroys its group with work pending", "", "", 0.0, NOTHING, 0, points=("async",),
    ),
}  # fmt: skip
NETWORK = ("no_network", "one_way")
FATAL = (
    "killed",
    "stopped",
    "segfaults",
    "vanishes",
    "over_limit",
)  # may strike at any moment, not in a call


def points_of(kind: str) -> tuple[str, ...]:
    """Where a kind is tried: before one of the calls; what needs no code of the rank also at any
    moment of a large all_reduce."""
    return KINDS[kind].points or (CALLS + ("any moment",) if kind in FATAL else CALLS)


@dataclass
class Seen:
    """What one rank saw. ``named``: the rank that the error is about; ``usable``: could it do what
    the specification says?"""

    rank: int
    error: str = ""
    named: int = -1
    text: str = ""
    traceback: str = ""
    seconds: float = 0.0
    usable: bool = False
    said: str = field(default="", repr=False)  # where it could not

    as_dict = asdict


@dataclass(frozen=True)
class Trial:
    """One run. ``simulated``: ranks are threads, and a kill is a simulated one; ``recover``: the
    others go on, else they end of the error."""

    kind: str
    point: str
    victim: int
    ranks: int
    seed: int
    recover: bool
    simulated: bool = False
    owner: int = field(default_factory=os.getpid)

    @property
    def name(self) -> str:
        """Its own, on this machine."""
        return f"{self.owner}-{self.seed}"


def take_part(
    trial: Trial,
    struck: Callable[[], None],
    since: Callable[[], float],
    tell: Callable[[Seen], None],
) -> None:
    """The program of a rank. ``struck()`` is called just before the fault, ``since()`` says how
    many seconds ago that was, and ``tell`` takes what this rank saw."""
    me = dist.get_rank()
    pair = dist.new_group([trial.victim, (trial.victim + 1) % trial.ranks])
    seen = Seen(me)
    if trial.kind == "over_limit" and me == trial.victim:
        memory_limit.enter(trial.name, LIMIT)
        time.sleep(LOOKED_AT)
    try:
        for _ in range(ROUNDS):
            for point in CALLS:
                call(point, trial, pair)
        if me == trial.victim:
            struck()
            strike(trial, pair)
        else:
            carry_on(trial, pair)
    except CommError as error:
        seen.seconds, seen.error, seen.text = since(), type(error).__name__, str(error)
        if isinstance(error, PeerFailed):
            seen.named, seen.traceback = error.rank, error.traceback
        if not trial.recover:
            tell(seen)
            raise
        try:
            seen.usable = go_on(trial, error, me)
        except Exception as later:
            seen.said = f"{type(later).__name__}: {later}"
    else:
        seen.usable = True
    tell(seen)


def call(point: str, trial: Trial, pair: object) -> None:
    """One call of all ranks."""
    me, victim, n = dist.get_rank(), trial.victim, trial.ranks
    if point in ("small", "large", "async"):
        x = dt.ones(LARGE if point == "large" else SMALL)
        work = dist.all_reduce(x, async_op=point == "async")
        if work is not None:
            work.wait()
        assert x[0].item() == n == x[-1].item()
    elif point == "barrier":
        dist.barrier()
    elif point == "message":
        if me == victim:
            for r in set(range(n)) - {me}:
                dist.send(dt.ones(SMALL), r)
        else:
            dist.recv(dt.zeros(SMALL), victim)
    elif point == "pair" and isinstance(pair, dist.ProcessGroup):
        dist.all_reduce(dt.ones(SMALL), group=pair)


def carry_on(trial: Trial, pair: object) -> None:
    """What the others do at the moment of the fault, and after it."""
    point = "large" if trial.point == "any moment" else trial.point
    if trial.kind == "crossed":
        dist.all_reduce(dt.ones(SMALL), group=pair) if isinstance(pair, dist.ProcessGroup) else None
        dist.barrier()
        return
    if trial.kind == "leaves_pending":
        work = dist.all_reduce(dt.ones(LARGE), async_op=True)
        work.wait()
        dist.destroy_process_group()
        return
    call(point, trial, pair)
    while trial.point == "any moment":
        call(point, trial, pair)
    if trial.kind == "never_waits":
        return
    dist.barrier()  # for those whose part of the call was no wait


def strike(trial: Trial, pair: object) -> None:
    """The fault."""
    if trial.point == "any moment":
        delay = (trial.seed * 0.618034) % 1.0 * 0.02
        threading.Thread(target=lambda: (time.sleep(delay), end(trial)), daemon=True).start()
        while True:
            call("large", trial, pair)
    if trial.kind == "other_call":
        dist.all_reduce(dt.ones(SMALL, dtype=dt.float64), async_op=False)
    elif trial.kind == "fewer_calls":
        dist.all_reduce(dt.ones(3))  # what the others call only later
    elif trial.kind == "crossed":
        dist.barrier()
        dist.all_reduce(dt.ones(SMALL), group=pair)
    elif trial.kind == "never_waits":
        dist.all_reduce(dt.ones(SMALL), async_op=True)
    elif trial.kind == "leaves_pending":
        dist.all_reduce(dt.ones(LARGE), async_op=True)
        dist.destroy_process_group()
    elif trial.kind in NETWORK:
        while True:
            carry_on(trial, pair)
    else:
        end(trial)


def end(trial: Trial) -> None:
    """The kinds of which a rank ends, or does nothing more."""
    kind = trial.kind
    if kind == "raises":
        raise ValueError(WORDS)
    if kind == "exits_0":
        sys.exit(0)
    if kind == "exits_3":
        sys.exit(3)
    if kind == "no_memory":
        if trial.simulated:
            raise MemoryError("simulated")
        resource.setrlimit(resource.RLIMIT_DATA, (64 << 20, 64 << 20))
        bytearray(1 << 40)
    if kind == "over_limit":
        bytearray(b"x") * (4 * LIMIT)
    if kind == "killed" and trial.simulated:
        die()
    if kind == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if kind == "vanishes":
        os._exit(0)
    assert kind == "segfaults", kind
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.disable()
    ctypes.string_at(0)


def go_on(trial: Trial, error: CommError, me: int) -> bool:
    """Do what the specification says can be done; is the result right?"""
    after = KINDS[trial.kind].after
    if isinstance(error, Deadlock):
        return True  # a simulation ends there
    if after == SAME:
        if not isinstance(error, CollectiveMismatch):
            return False
        x = dt.ones(SMALL)
        dist.all_reduce(x)
        return x[0].item() == trial.ranks
    while True:
        try:
            before = dist.shrink(timeout=20.0)
            x = dt.ones(SMALL)
            dist.all_reduce(x)
            break
        except (PeerFailed, GroupRevoked):
            continue
    if after == SHRINK:
        rest = [r for r in range(trial.ranks) if r != trial.victim]
        return before == rest and x[0].item() == len(rest)
    return x[0].item() == len(before)
