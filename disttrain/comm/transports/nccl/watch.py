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
from collections.abc import Callable, Iterable
from typing import Any

from .... import context
from ....errors import WaitTimeout

_SLOT = "comm.nccl.watch"
BUSY, IDLE = 0.01, 0.5  # seconds between looks


class Watch:
    """Of one rank."""

    def __init__(self) -> None:
        self._all: weakref.WeakSet[Any] = weakref.WeakSet()
        self._bell = threading.Event()
        self._lock = threading.Lock()
        self._looking = threading.RLock()  # held by the thread during each of its looks
        self._pid = 0  # of the process whose thread looks; none in one that was forked from it

    def add(self, transport: object) -> None:
        """Look after ``transport`` until it is removed or gone."""
        with self._lock:
            self._all.add(transport)
            if self._pid == os.getpid():
                return
            self._pid = os.getpid()
        context.start_thread(self._run, "nccl watch")

    def remove(self, transport: object) -> None:
        """Look no longer after ``transport``; no look at it, or at what it lies on, goes on."""
        with self._lock:
            self._all.discard(transport)
            mine = self._pid == os.getpid()
        self._bell.set()
        if mine:
            with self._looking:
                pass

    def hurry(self) -> None:
        """There is something in flight."""
        if not self._bell.is_set():
            self._bell.set()

    def _run(self) -> None:
        me = context.current()
        simulated = me.waiter.simulated
        while True:
            if self._idle():
                return
            try:
                if simulated:
                    context.wait_until(self._turn, lambda: "what devices do", self._until())
                elif self._look_round(me.waiter.interrupts):
                    time.sleep(BUSY)
                else:
                    self._bell.wait(IDLE)
                    self._bell.clear()
            except WaitTimeout:
                continue
            except Exception as error:  # nobody else would end what is in flight
                for each in self._each():
                    each.fail(error)
                if simulated:
                    with self._lock:
                        self._pid = 0  # who comes later is looked after anew
                    return
                self._bell.wait(IDLE)

    def _each(self) -> tuple[Any, ...]:
        """The transports of now: threads of the program add and remove some meanwhile."""
        with self._lock:
            return tuple(self._all)

    def _idle(self) -> bool:
        """Whether there is nobody to look after; who comes then is looked after anew."""
        with self._lock:
            if self._all:
                return False
            self._pid = 0
            return True

    def _look_round(self, interrupts: Iterable[Callable[[], None]]) -> bool:
        """One look of a thread's, which ends before what it looks at may be closed."""
        with self._looking:
            if not self._each():
                return False
            for check in tuple(interrupts):
                check()
            return self._look()

    def _turn(self) -> bool:
        """One look of a simulated rank's; it goes on for as long as there is something to see."""
        self._look()
        return not self._each()

    def _look(self) -> bool:
        """Whether something is in flight. What cannot be looked at is ended: nobody else would."""
        busy = False
        for each in self._each():
            try:
                busy |= each.look()
            except Exception as error:
                each.fail(error)
        return busy

    def _until(self) -> float:
        """How long the operations that are in flight may still last."""
        ends = [each.deadline() for each in self._each()]
        return max(0.0, min(ends, default=context.now() + context.DEFAULT_TIMEOUT) - context.now())


def watch() -> Watch:
    """The calling rank's."""
    return context.current().slot(_SLOT, Watch)
