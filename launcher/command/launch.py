"""``launch(fn)``: run a function on several ranks and return their results."""

from __future__ import annotations

import os
import pickle
import select
import signal
import struct
import sys
import time
from collections.abc import Callable, Collection
from typing import Any

from disttrain.errors import LaunchError
from disttrain.lifetime import end_of
from disttrain.outputs import flush, put

from ..node.agent import Agent
from ..node.outcome import Attempt
from ..plan.job import Plan, reserve_port
from ..worker import open_files
from ..worker.processes import held_back
from . import preloads
from .forward import Forward, leads_to

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def launch(
    fn: Callable[..., Any],
    nproc_per_node: int = 1,
    args: tuple = (),
    max_restarts: int = 0,
    log_dir: str | None = None,
    min_ranks: int = 0,
) -> list[Any]:
    """Call ``fn(*args)`` on ``nproc_per_node`` ranks, forked from this process; their results.

    Inside, the environment is that of ``dtrun``: ``init_process_group()`` needs no arguments.
    ``fn`` may be a closure; its result must be picklable. numpy keeps the number of threads that
    it was loaded with, so set OMP_NUM_THREADS=1 before that when the ranks share few cores.
    ``min_ranks``: ranks may fail as long as so many are left, which go on by themselves
    (``disttrain.distributed.shrink``); what failed ranks would have returned is None.
    Raises ``LaunchError`` with the first failure's rank, cause and traceback; all ranks and what
    they started are gone by then.
    """
    if not isinstance(nproc_per_node, int) or nproc_per_node < 1:
        raise LaunchError(
            f"launch: nproc_per_node={nproc_per_node!r} given; a number of ranks, at least 1, "
            "is needed"
        )
    name = getattr(fn, "__qualname__", repr(fn))
    holder = reserve_port()
    plan = Plan(
        (name,),
        nproc_per_node,
        max_restarts=max_restarts,
        min_ranks=min_ranks,
        log_dir=log_dir,
        signals=SIGNALS,
        master_port=holder.getsockname()[1],
        preloads=preloads.of(max_restarts),
    )

    files = open_files.settle()

    def body(rank: int) -> bytes:
        try:
            return pickle.dumps(fn(*args), protocol=pickle.HIGHEST_PROTOCOL)
        finally:
            open_files.flush(files)

    with holder:
        attempt = run_in_agent(plan, body)
    if attempt.code:
        raise LaunchError(_failure(attempt, name))
    ended = {r.rank for r in attempt.ranks if not r.code}
    without = [r for r, data in enumerate(attempt.results) if not data and r in ended]
    if without:
        raise LaunchError(
            f"launch({name}): ranks {without} have ended with exit code 0, but not by returning "
            "from the function (os._exit, or an exec); return, so that there is a result"
        )
    # From our own forked children.
    return [pickle.loads(data) if data else None for data in attempt.results]


def _failure(attempt: Attempt, name: str) -> str:
    first = attempt.first
    if first is None:
        return f"launch({name}): ended by signal {attempt.stopped_by}"
    others = "".join(
        f"\n  also rank {r.rank}: {r.cause.splitlines()[0]}"
        for r in attempt.ranks
        if r.rank != first.rank and r.code
    )
    trace = f"\n{first.traceback}" if first.traceback else ""
    return f"launch({name}): rank {first.rank} failed: {first.cause}{trace}{others}"


def run_in_agent(plan: Plan, body: Callable[[int], bytes] | None, kept: object = None) -> Attempt:
    """Fork an agent, let it run the job, and take its outcome. ``kept``: the keeper of a job on
    several nodes, see ``nodes``."""
    job = Job(plan, body, kept=kept)
    try:
        job.wait()
    finally:
        attempt = job.end()
    if attempt is None:
        raise LaunchError("launch: the agent process died; its ranks were killed with it")
    return attempt


class Job:
    """A job whose agent is forked from this process, which goes on beside it.

    Two processes, so that whichever is killed, the other one cleans up: the agent sees the end of
    the pipe, the kernel kills the ranks when the agent dies. ``outputs``: descriptors that the
    agent and the ranks write to; without them, what they write goes where ``sys.stdout`` and
    ``sys.stderr`` lead, be that a cell of a notebook.
    """

    def __init__(
        self,
        plan: Plan,
        body: Callable[[int], bytes] | None,
        outputs: tuple[int, int] | None = None,
        kept: Any = None,
    ) -> None:
        self._forwards: list[Forward] = []
        self._kept = kept
        if outputs is None:
            outputs = self._given(1, sys.stdout), self._given(2, sys.stderr)
        alive_reader, self._alive = os.pipe()
        self._outcome, outcome_writer = os.pipe()
        flush()
        with held_back(plan.signals):
            self._pid = os.fork()
            if self._pid == 0:
                os.close(self._alive)
                os.close(self._outcome)
                for given, ours in zip(outputs, (1, 2)):
                    if given != ours:
                        os.dup2(given, ours)
                _agent(plan, body, alive_reader, outcome_writer, kept)
        if kept is not None:
            kept.sock.close()
        os.close(alive_reader)
        os.close(outcome_writer)
        for forward in self._forwards:
            forward.started()
        os.set_blocking(self._outcome, False)
        self._pidfd = end_of(self._pid)
        self._data = bytearray()
        self._over = False

    def _given(self, fd: int, stream: object) -> int:
        """Where the agent writes so that it appears at ``stream``."""
        if stream is None or leads_to(stream, fd):
            return fd
        forward = Forward(stream)
        self._forwards.append(forward)
        return forward.writer

    def wait(self, seconds: float | None = None) -> bool:
        """Has it ended within so many seconds (None: whenever it does)?"""
        deadline = None if seconds is None else time.monotonic() + seconds
        poll, readers = select.poll(), {f.reader: f.pump for f in self._forwards}
        for fd in (self._outcome, self._pidfd, *readers):
            poll.register(fd, select.POLLIN)
        while not self._over:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            events = dict(poll.poll(None if left is None else left * 1000))
            if not events and left is not None and not left:
                return False
            for fd in events.keys() & readers.keys():
                if not readers[fd]():
                    poll.unregister(fd)
            self._over = self._look(events.keys())
        return True

    def _look(self, events: Collection[int]) -> bool:
        """Take what has come of the outcome; True at its end, or at the agent's: what that one has
        started may hold the other end open for longer."""
        gone = self._pidfd in events  # all there is, before the end of the process counts
        while True:
            try:
                part = os.read(self._outcome, 1 << 20)
            except BlockingIOError:
                return gone
            if not part:
                return True
            self._data += part

    def ask(self, number: int) -> None:
        """Send the agent a signal of the plan's, which it passes on to the ranks."""
        if not self._over:
            os.kill(self._pid, number)

    def end(self) -> Attempt | None:
        """End what still runs, at once; the outcome, None where the agent has died."""
        if self._pid:
            os.close(self._alive)  # an agent that still runs ends all ranks, then itself
            try:
                self.wait()
            finally:
                os.waitpid(self._pid, 0)
                if self._kept is not None:
                    self._kept.wait()
                for forward in self._forwards:
                    forward.finish()
                os.close(self._outcome)
                os.close(self._pidfd)
                self._pid = 0
        return None if len(self._data) < 8 else pickle.loads(self._data[8:])  # of our own child


def _agent(
    plan: Plan, body: Callable[[int], bytes] | None, alive: int, outcome: int, kept: Any
) -> None:
    """Run the job in this forked process and send what came of it. Does not return."""
    code = 1
    try:
        os.setpgid(0, 0)
        sys.stdout, sys.stderr = (
            stream if stream is None or leads_to(stream, fd) else _text(fd)
            for stream, fd in ((sys.stdout, 1), (sys.stderr, 2))
        )
        orders = None if kept is None else kept.orders()
        data = pickle.dumps(Agent(plan, body, alive, orders).run())
        with os.fdopen(outcome, "wb") as f:
            f.write(struct.pack("<Q", len(data)) + data)
        code = 0
    except BaseException as error:
        put(f"launcher: {type(error).__name__}: {error}\n")
    finally:
        os._exit(code)


def _text(fd: int) -> Any:
    """What a process of its own finds there, for one that was forked from a notebook's."""
    return open(fd, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
