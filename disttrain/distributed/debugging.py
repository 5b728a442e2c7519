"""Helps for those who look at a job: a rank in the debugger, and names for what a profiler sees of
communication."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from .. import context
from ..comm.job.segment import JOB_SLOT, Segment
from ..debugger import session
from ..debugger.stopping import MUTED_SLOT, PROMPT
from ..errors import ConfigError
from ..profiler import named_comm
from .collectives.tensors import barrier
from .groups.state import is_initialized

_PASSED = (
    "distributed.breakpoints"  # the slot of how often each place was passed, and each rank met
)


def breakpoint(rank: int = 0, skip: int = 0, timeout_s: float | None = 3600) -> None:
    """Stop ``rank`` in Python's debugger, at the caller's line; the others that call this wait
    until it goes on.

    Under ``dtrun`` the rank gets the terminal at which the job was started, or that of ``disttrain
    attach JOB RANK``; no deadline of the job runs meanwhile, so ranks may wait elsewhere, too.
    Which call of the others belongs to which of the rank's is told by their order; where the rank
    alone calls this, nobody waits here. (Ranks of several hosts, and those of other launchers, meet
    in a barrier afterwards, so there all have to call it.) The first ``skip`` calls at a place do
    nothing. ``timeout_s``: for so long nobody need come to a terminal (None: an hour).

    Raises ``ConfigError`` for a rank that does not exist, ``WaitTimeout`` where nobody came.
    """
    me, place = context.current(), sys._getframe(1)
    seconds = _checked(rank, skip, timeout_s)
    passed: dict[object, int] = me.slot(_PASSED, dict)
    if skip:
        where = place.f_code, place.f_lineno
        passed[where] = passed.get(where, 0) + 1
        if passed[where] <= skip:
            return
    passed[rank] = passed.get(rank, 0) + 1
    job: Segment | None = me.slots.get(JOB_SLOT)
    if job is not None and rank not in job.here:
        job = None
    if session.number() != rank:
        _await(rank, job, passed[rank], seconds)
    elif not me.slots.get(MUTED_SLOT):
        prompt = importlib.import_module(PROMPT)
        prompt.stop_in(place, seconds=seconds, after=lambda: _leave(rank, job))


def _checked(rank: int, skip: int, timeout_s: float | None) -> float:
    for name, value in (("rank", rank), ("skip", skip)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ConfigError(f"breakpoint: {name}={value!r} given; a number from 0 on is needed")
    size = context.current().world_size
    if rank >= size:
        raise ConfigError(f"breakpoint: rank={rank} given; the job has ranks 0 to {size - 1}")
    seconds = session.SECONDS if timeout_s is None else timeout_s
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise ConfigError(f"breakpoint: timeout_s={timeout_s!r} given; seconds are needed")
    if not 0 < seconds < math.inf:
        raise ConfigError(
            f"breakpoint: timeout_s={seconds:g} given; it must be above 0, and finite"
        )
    return float(seconds)


def _await(rank: int, job: Segment | None, count: int, seconds: float) -> None:
    """Until ``rank`` has left as many breakpoints behind as we have waited for."""
    if job is None:
        _meet()
        return
    slot = job.slot(rank)
    context.wait_until(
        lambda: slot.breakpoints >= count or slot.lost,
        lambda: f"rank {rank} to leave the debugger (distributed.breakpoint)",
        seconds,
    )


def _leave(rank: int, job: Segment | None) -> None:
    if job is None:
        _meet()
    else:
        job.slot(rank).breakpoints += 1


def _meet() -> None:
    """Where ranks share no memory. On a simulated cluster nobody goes on meanwhile anyway."""
    if is_initialized() and not context.current().waiter.simulated:
        barrier()


@contextmanager
def record_comm(name: str) -> Iterator[None]:
    """Collectives that this thread starts inside the block stand in a profile as ``name``, in place
    of "gloo:all_reduce" and the like."""
    before = named_comm.name
    named_comm.name = name
    try:
        yield
    finally:
        named_comm.name = before
