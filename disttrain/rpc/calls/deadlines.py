"""Calls that take too long fail at their deadline, whether or not somebody waits for them.

One thread per worker, started when the first call that nobody waits for at once has a deadline.
Nothing is kept per call: the thread looks through the calls in flight, and sleeps until the
earliest deadline among them or until an earlier one is ``note``d.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from ... import context
from ...errors import PeerFailed, WaitTimeout
from .answers import INFINITE, CallFuture

_IDLE = 3600.0
_AFTER_FAILURE = 0.05


class Deadlines:
    """``in_flight()``: the calls to look through; ``expire``: what is done to a late one;
    ``start``: starts the thread."""

    def __init__(
        self,
        in_flight: Callable[[], Iterable[CallFuture]],
        expire: Callable[[CallFuture], None],
        start: Callable[[Callable[[], None], str], None],
    ) -> None:
        self._in_flight, self._expire, self._start = in_flight, expire, start
        self._lock, self._bell = threading.Lock(), threading.Event()
        self._runs = self._closed = False
        self.next = INFINITE  # the thread wakes by then without being told

    def note(self, deadline: float) -> None:
        """A call with this deadline is in flight from now on."""
        if deadline < self.next:
            with self._lock:
                if not self._runs and not self._closed:
                    self._runs = True
                    self._start(self._watch, "rpc deadlines")
            self._bell.set()

    def close(self) -> None:
        """Let the thread end."""
        with self._lock:
            self._closed = True
        self._bell.set()

    def _watch(self) -> None:
        while not self._closed:
            self._bell.clear()
            self.next = INFINITE  # whoever comes from here on rings
            self.next = earliest = self._expire_late()
            left = min(_IDLE, earliest - context.now())
            try:
                context.wait_until(self._bell.is_set, _what, left, self._block)
            except WaitTimeout:
                continue
            except PeerFailed:  # some rank has failed, which concerns those who wait for it
                context.sleep(max(0.0, min(_AFTER_FAILURE, left)))

    def _block(self, seconds: float) -> None:
        self._bell.wait(seconds)

    def _expire_late(self) -> float:
        """Fail what is late; the earliest deadline of the others."""
        now, earliest = context.now(), INFINITE
        for future in self._in_flight():
            if future.deadline <= now:
                self._expire(future)
            elif future.deadline < earliest:
                earliest = future.deadline
        return earliest


def _what() -> str:
    return "the deadlines of calls"
