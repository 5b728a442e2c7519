"""``launch(fn)``: run a function on several ranks and return their results."""

from __future__ import annotations

import os
import pickle
import select
import signal
import struct
import sys
from collections.abc import Callable
from typing import Any

from disttrain.errors import LaunchError
from disttrain.lifetime import end_of

from .agent import Agent
from .outcome import Attempt
from .plan import Plan, reserve_port
from .processes import held_back

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
    )

    def body(rank: int) -> bytes:
        return pickle.dumps(fn(*args), protocol=pickle.HIGHEST_PROTOCOL)

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


def run_in_agent(plan: Plan, body: Callable[[int], bytes] | None) -> Attempt:
    """Fork an agent, let it run the job, and take its outcome.

    Two processes, so that whichever is killed, the other one cleans up: the agent sees the end of
    the pipe, the kernel kills the ranks when the agent dies.
    """
    alive_reader, alive_writer = os.pipe()
    outcome_reader, outcome_writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    with held_back(plan.signals):
        pid = os.fork()
        if pid == 0:
            os.close(alive_writer)
            os.close(outcome_reader)
            _agent(plan, body, alive_reader, outcome_writer)
    os.close(alive_reader)
    os.close(outcome_writer)
    try:
        data = _read_until_end(outcome_reader, pid)
    finally:
        os.close(outcome_reader)
        os.close(alive_writer)  # an agent that still runs ends all ranks, then itself
        os.waitpid(pid, 0)
    if len(data) < 8:
        raise LaunchError("launch: the agent process died; its ranks were killed with it")
    return pickle.loads(data[8:])  # from our own forked child


def _read_until_end(fd: int, pid: int) -> bytes:
    """What comes at ``fd`` until it ends or the process ``pid`` does: what that one has started
    may hold the other end open for longer."""
    data, pidfd = bytearray(), end_of(pid)
    os.set_blocking(fd, False)
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    poll.register(pidfd, select.POLLIN)
    try:
        while True:
            events = dict(poll.poll())
            while fd in events:  # all there is, before the end of the process counts
                try:
                    part = os.read(fd, 1 << 20)
                except BlockingIOError:
                    break
                if not part:
                    return bytes(data)
                data += part
            if pidfd in events and fd not in dict(poll.poll(0)):
                return bytes(data)
    finally:
        os.close(pidfd)


def _agent(plan: Plan, body: Callable[[int], bytes] | None, alive: int, outcome: int) -> None:
    """Run the job in this forked process and send what came of it. Does not return."""
    code = 1
    try:
        os.setpgid(0, 0)
        data = pickle.dumps(Agent(plan, body, alive).run())
        with os.fdopen(outcome, "wb") as f:
            f.write(struct.pack("<Q", len(data)) + data)
        code = 0
    except BaseException as error:
        sys.stderr.write(f"launcher: {type(error).__name__}: {error}\n")
        sys.stderr.flush()
    finally:
        os._exit(code)
