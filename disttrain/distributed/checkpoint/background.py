"""One piece of work that runs beside the program, with a group of its own.

The group has the same ranks as the program's, so what runs beside it meets its peers without
getting between the program's own collectives. One piece runs at a time on a rank. Simulated ranks,
which take turns, do the work at once. Knows groups and threads; knows no checkpoint.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from ... import context
from ...comm.group.group import ProcessGroup
from ...comm.transports.sim import SimWaiter
from ..groups.state import beside

_SLOT = "checkpoint.background"


@dataclass
class _Running:
    """What a rank has running."""

    thread: threading.Thread | None = None
    futures: list[Future] = field(default_factory=list)


def wait_for_pending() -> None:
    """Until nothing runs. What went wrong with it is its future's to say."""
    running = context.current().slot(_SLOT, _Running)
    if running.thread is not None:
        running.thread.join()
        running.thread = None


def background(group: ProcessGroup | None, work: Callable[[ProcessGroup | None], Any]) -> Future:
    """Run ``work(group)`` beside the program, with a group of the same ranks. Every rank of
    ``group`` calls it."""
    me = context.current()
    future: Future = Future()
    future.set_running_or_notify_cancel()
    if isinstance(me.waiter, SimWaiter):
        _run(me, future, work, group)
        return future
    wait_for_pending()
    own = None if group is None else beside(group, wait_for_pending)
    running = me.slot(_SLOT, _Running)
    running.thread = threading.Thread(
        target=_run, args=(me, future, work, own), name="checkpoint", daemon=False
    )
    running.thread.start()
    return future


def _run(me: context.Rank, future: Future, work: Callable[[Any], Any], group: Any) -> None:
    with context.attach(me):
        try:
            result = work(group)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)
