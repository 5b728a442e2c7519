"""``run``: calls a function again when ranks were lost, or wait to join."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from ... import context, settings
from ...comm.job.segment import JOB_SLOT
from ...errors import GroupRevoked, PeerFailed
from ..groups.state import group_or_default, init_process_group, is_initialized
from ..recovery import shrink
from .state import Regroup, State

P = ParamSpec("P")
R = TypeVar("R")


def run(function: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Make ``function(state, ...)`` go on when ranks fail, or come.

    Makes the default group, where there is none; then calls the function with the state of the rank
    that is furthest (at first: that of rank 0). When another rank fails, those that are left go
    back to the last commit, make a default group of themselves and call it again; when processes
    wait to join (``dtrun --replace-ranks``), all do so at the next commit, and go back to nothing.
    Whatever belongs to a group, such as a ``DistributedDataParallel``, is made inside.

    A rank's own exception ends it, as ever. Where the launcher would end the job anyhow (``dtrun``
    without ``--min-ranks`` or ``--replace-ranks``), ``PeerFailed`` is raised as without this.
    """

    name = getattr(function, "__qualname__", type(function).__name__)

    @functools.wraps(function)
    def wrapper(state: State | int, *args: P.args, **kwargs: P.kwargs) -> R:
        if not isinstance(state, State):
            raise TypeError(
                f"elastic.run: {name}() was called with "
                f"{type(state).__name__} first; an elastic.State is needed there"
            )
        state.begin()
        if not is_initialized():
            init_process_group()
        must_regroup = False
        while True:
            try:
                if must_regroup:
                    shrink()
                    must_regroup = False
                state.sync(name)
                return function(state, *args, **kwargs)
            except Regroup:
                must_regroup = True
            except (PeerFailed, GroupRevoked):
                if not _may_go_on():
                    raise
                must_regroup = True

    return wrapper


def is_newcomer() -> bool:
    """Was this process started in the place of a rank that was lost, while others go on? Then it
    need not load a checkpoint: ``run`` takes the state of one of them."""
    me = context.current()
    job = me.slots.get(JOB_SLOT)
    return job is not None and job.slot(me.rank).turn > 0


def _may_go_on() -> bool:
    """With one rank less, does the launcher let the others go on? Without one, nobody is asked."""
    least = settings.MIN_RANKS.text()
    return not least.isdigit() or group_or_default().size - 1 >= int(least)
