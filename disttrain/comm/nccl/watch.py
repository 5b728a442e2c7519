"""Who looks after what is in flight on devices while nobody waits for it: one thread per rank.

It asks the transports to look at their announcements, their communicators and their oldest
operation, often while there is something, and hears where a peer has died. A simulated rank has a
task for it, which takes turns with all others. Knows transports by ``look`` and ``fail``.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Any

from ... import context
from ...errors import CommError, Deadlock, WaitTimeout

_SLOT = "comm.nccl.watch"
BUSY, IDLE = 0.01, 0.5  # seconds between looks


class Watch:
    """Of one rank."""

    def __init__(self) -> None:
        self._all: weakref.WeakSet[Any] = weakref.WeakSet()
        self._bell = threading.Event()
        self._lock = threading.Lock()
        self._pid = 0  # of the process whose thread looks; none in one that was forked from it

    def add(self, transport: Any) -> None:
        """Look after ``transport`` until it is removed or gone."""
        with self._lock:
            self._all.add(transport)
            if self._pid == os.getpid():
                return
            self._pid = os.getpid()
        context.start_thread(self._run, "nccl watch")

    def remove(self, transport: Any) -> None:
        self._all.discard(transport)
        self._bell.set()

    def hurry(self) -> None:
        """There is something in flight."""
        if not self._bell.is_set():
            self._bell.set()

    def _run(self) -> None:
        me = context.current()
        simulated = me.waiter.simulated
        while True:
            with self._lock:
                if not self._all:
                    self._pid = 0
                    return
            try:
                if simulated:
                    context.wait_until(self._turn, lambda: "what devices do", self._until())
                else:
                    for check in tuple(me.waiter.interrupts):
                        check()
                    if self._look():
                        time.sleep(BUSY)
                    else:
                        self._bell.wait(IDLE)
                        self._bell.clear()
            except WaitTimeout:
                continue
            except (CommError, Deadlock) as error:
                for each in tuple(self._all):
                    each.fail(error)
                if simulated:
                    return
                self._bell.wait(IDLE)

    def _turn(self) -> bool:
        """One look of a simulated rank's; it goes on for as long as there is something to see."""
        self._look()
        return not self._all

    def _look(self) -> bool:
        busy = [each.look() for each in tuple(self._all)]
        return any(busy)

    def _until(self) -> float:
        """How long the operations that are in flight may still last."""
        ends = [each.deadline() for each in tuple(self._all)]
        return max(0.0, min(ends, default=context.now() + context.DEFAULT_TIMEOUT) - context.now())


def watch() -> Watch:
    """The calling rank's."""
    return context.current().slot(_SLOT, Watch)
