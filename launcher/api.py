"""``launch(fn)``: run a function on several ranks and return their results."""

from __future__ import annotations

import os
import pickle
import signal
import struct
import sys
from collections.abc import Callable
from typing import Any

from disttrain.errors import LaunchError

from .agent import Agent, Attempt
from .plan import Plan

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def launch(
    fn: Callable[..., Any],
    nproc_per_node: int = 1,
    args: tuple = (),
    max_restarts: int = 0,
    log_dir: str | None = None,
) -> list[Any]:
    """Call ``fn(*args)`` on ``nproc_per_node`` ranks, forked from this process; their results.

    Inside, the environment is that of ``dtrun``: ``init_process_group()`` needs no arguments. ``fn``
    may be a closure; its result must be picklable. Raises ``LaunchError`` with the first failure's
    rank, cause and traceback; all ranks and what they started are gone by then.
    """
    if not isinstance(nproc_per_node, int) or nproc_per_node < 1:
        raise LaunchError(
            f"launch: nproc_per_node={nproc_per_node!r} given; a number of ranks, at least 1, is needed"
        )
    name = getattr(fn, "__qualname__", repr(fn))
    plan = Plan(
        (name,), nproc_per_node, max_restarts=max_restarts, log_dir=log_dir, signals=SIGNALS
    )

    def body(rank: int) -> bytes:
        return pickle.dumps(fn(*args), protocol=pickle.HIGHEST_PROTOCOL)

    attempt = run_in_agent(plan, body)
    if attempt.code:
        raise LaunchError(_failure(attempt, name))
    return [pickle.loads(data) for data in attempt.results]  # from our own forked children


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
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(alive_writer)
            os.close(outcome_reader)
            os.setpgid(0, 0)
            attempt = Agent(plan, body, alive_reader).run()
            data = pickle.dumps(attempt)
            with os.fdopen(outcome_writer, "wb") as f:
                f.write(struct.pack("<Q", len(data)) + data)
            code = 0
        except BaseException as error:
            sys.stderr.write(f"launcher: {type(error).__name__}: {error}\n")
        finally:
            os._exit(code)
    os.close(alive_reader)
    os.close(outcome_writer)
    try:
        with os.fdopen(outcome_reader, "rb") as f:
            data = f.read()
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        os.close(alive_writer)
        os.waitpid(pid, 0)
    if len(data) < 8:
        raise LaunchError("launch: the agent process died; its ranks were killed with it")
    return pickle.loads(data[8:])  # from our own forked child
