"""Run a function on several ranks, each a forked process, and collect what they return.

    def body(rank):
        return rank * 2

    assert run_ranks(3, body) == [0, 2, 4]

Ranks are forked from the test process, so ``fn`` may be a closure and nothing is imported again;
results come back pickled. Knows processes and the rank context; ``support.groups`` adds a segment
and process groups.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import secrets
import select
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from disttrain import context
from disttrain.errors import PeerFailed

# Below those that the kernel chooses from, by default and by custom.
_PORTS = range(10_000, 29_000)


@dataclass
class Outcome:
    """What became of one rank: a value, an exception (with traceback text), or a death."""

    rank: int
    value: Any = None
    error: BaseException | None = None
    traceback: str = ""
    signal: int = 0
    exitcode: int | None = None
    at: float = field(default=0.0, repr=False)

    @property
    def ok(self) -> bool:
        return self.error is None and self.exitcode == 0 and not self.signal

    def cause(self) -> str:
        """One line that says why the rank is not ok."""
        if self.error is not None:
            return f"{type(self.error).__name__}: {self.error}"
        if self.signal:
            return f"killed by {signal.Signals(self.signal).name}"
        return f"exited with code {self.exitcode} without a result"


class RankError(AssertionError):
    """A rank failed; the message has its traceback, then one line for every other failed rank."""


def run_ranks(n: int, fn: Callable[[int], Any], timeout: float = 50.0) -> list:
    """Call ``fn(rank)`` on ``n`` forked ranks; the results by rank.

    The first failure is raised as ``RankError`` (the exception itself is its ``__cause__``).
    ``timeout`` seconds after the start, ranks still running are killed and reported.
    """
    return values(fork_ranks(n, fn, timeout))


def values(outcomes: list[Outcome]) -> list:
    """The values of ``outcomes``, or ``RankError`` with the first failure as headline."""
    failed = sorted((o for o in outcomes if not o.ok), key=_blame)
    if not failed:
        return [o.value for o in outcomes]
    first = failed[0]
    text = f"rank {first.rank}: {first.traceback or first.cause()}"
    rest = "".join(f"\n  also rank {o.rank}: {o.cause()}" for o in failed[1:])
    raise RankError(text + rest) from first.error


def _blame(outcome: Outcome) -> tuple:
    """Sort key: the failure that others only echo comes first."""
    return (type(outcome.error).__name__ == "PeerFailed", outcome.at)


def fork_ranks(
    n: int,
    fn: Callable[[int], Any],
    timeout: float = 50.0,
    on_death: Callable[[int, str, str], None] | None = None,
) -> list[Outcome]:
    """As ``run_ranks``, but every rank's ``Outcome``, failed or not.

    ``on_death(rank, cause, traceback)`` is called in this process when a rank has failed or died,
    as a launcher would tell the other ranks.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    outcomes = [Outcome(r) for r in range(n)]
    parent = os.getpid()
    pids: dict[int, int] = {}
    pipes: dict[int, int] = {}
    deadline = time.monotonic() + timeout
    try:
        for rank in range(n):
            read, write = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(read)
                _child(rank, n, fn, write, timeout, parent)
            os.close(write)
            pids[rank], pipes[rank] = pid, read
        _collect(outcomes, pids, pipes, deadline, on_death)
    finally:
        for pid in pids.values():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        for fd in pipes.values():
            os.close(fd)
    return outcomes


def _collect(outcomes, pids, pipes, deadline, on_death) -> None:
    """Read every rank's report, in the order in which they come; reap the rank."""
    buffers = dict.fromkeys(pipes, b"")
    while pipes:
        left = deadline - time.monotonic()
        ready, _, _ = select.select(list(pipes.values()), [], [], max(0.0, left))
        if not ready:
            for rank in pipes:
                outcomes[rank].error = TimeoutError(f"rank {rank} still ran at the deadline")
            return
        for rank in [r for r, fd in pipes.items() if fd in ready]:
            data = os.read(pipes[rank], 1 << 20)
            buffers[rank] += data
            if not data:
                os.close(pipes.pop(rank))
                _settle(outcomes[rank], buffers[rank], pids.pop(rank))
                if on_death is not None and not outcomes[rank].ok:
                    _tell(on_death, outcomes[rank])


def _tell(on_death, outcome: Outcome) -> None:
    """Of the rank itself, or of the one whose failure it has ended with."""
    error = outcome.error
    if isinstance(error, PeerFailed):
        on_death(error.rank, error.cause, error.traceback)
    else:
        on_death(outcome.rank, outcome.cause(), outcome.traceback)


def _settle(outcome: Outcome, report: bytes, pid: int) -> None:
    status = os.waitpid(pid, 0)[1]
    outcome.at = time.monotonic()
    outcome.signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    outcome.exitcode = None if outcome.signal else os.WEXITSTATUS(status)
    if len(report) >= 8 and len(report) == 8 + struct.unpack("<Q", report[:8])[0]:
        outcome.value, outcome.error, outcome.traceback = pickle.loads(report[8:])


def _child(rank: int, n: int, fn, pipe: int, timeout: float, parent: int) -> None:
    """Run ``fn`` in the forked process and leave it without the test runner's exit handlers."""
    code = 1
    try:
        faulthandler.dump_traceback_later(max(0.5, timeout - 0.5), exit=False, file=sys.__stderr__)
        me = context.current()
        me.rank, me.world_size, me.local_rank, me.local_world_size = rank, n, rank, n
        me.slots.clear()
        me.waiter.interrupts.clear()
        try:
            report = (fn(rank), None, "")
        except BaseException as error:
            report = (None, error, traceback.format_exc())
        code = 0 if report[1] is None else 1
        data = _dump(report)
        while data and os.getppid() == parent:
            data = data[os.write(pipe, data) :]
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _dump(report: tuple) -> bytes:
    try:
        data = pickle.dumps(report)
        pickle.loads(data)  # some exceptions pickle but do not unpickle
    except Exception as problem:
        value, error, text = report
        told = RuntimeError(f"{type(error).__name__}: {error}" if error else f"result: {problem}")
        data = pickle.dumps((None, told, text or str(problem)))
    return struct.pack("<Q", len(data)) + data


def free_port() -> int:
    """A port that nobody listens on now. It is none of those that the kernel gives to who asks for
    any: these may be another program's before somebody listens, also as the near end of a
    connection, and who tries to connect to one may get itself at the other end."""
    while True:
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", _PORTS.start + secrets.randbelow(len(_PORTS))))
            return s.getsockname()[1]
