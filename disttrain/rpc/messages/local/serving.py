"""Who reads the requests that come on one link, and handles them.

The thread of the pool that has read a request handles it, and then reads the next one: as long as
requests come and are handled soon, no other thread is woken, and the link is not armed again. A
handler that takes long, or waits for an answer of its own, lets go of the link, so that others read
what comes meanwhile. Where handlers have taken long, the link is let go of before the next ones.
Knows links and threads; no peers.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from functools import partial

from ....errors import CommError
from ..contract.message import Message
from .link import Link
from .pool import Pool
from .waiters import Thread

SLOW = 0.0003  # seconds; what handlers below it do at once would not be done sooner in parallel
_AT_ONCE = int(socket.MSG_DONTWAIT)
WARY = 32  # messages after a slow one that are handled beside each other


class Serving:
    """``deliver`` handles a request; ``arm`` has the pool call ``attend`` when something has come;
    ``fail`` is told why nothing can come any more."""

    def __init__(
        self,
        link: Link,
        pool: Pool,
        thread: Thread,
        deliver: Callable[[Message], None],
        arm: Callable[[], None],
        fail: Callable[[CommError], object],
    ) -> None:
        self._link, self._pool, self._thread = link, pool, thread
        self._deliver, self._arm, self._fail = deliver, arm, fail
        self._held: dict[int, bool] = {}  # by turn: a handler runs and nobody else may read
        self._turn = self._wary = 0

    def attend(self, mask: int = 0) -> None:
        """Called by the pool when something has come: read and handle as long as there is more."""
        link = self._link
        if not link.reading.acquire(False):
            return
        self._pool.may_block()
        first = True
        while True:
            try:
                message = link.read(_AT_ONCE) if first else link.read_soon()
            except BlockingIOError:
                self._others_read()
                return
            except CommError as error:
                link.stop_reading()
                self._fail(error)
                return
            if message is None:
                continue
            if not (self._beside if self._wary else self._hold)(message):
                return
            message, first = None, False  # its arrays go now, not when the next request comes

    def _beside(self, message: Message) -> bool:
        """Handle a request while others read."""
        self._wary -= 1
        self._others_read()
        self._run(message)
        return False

    def _hold(self, message: Message) -> bool:
        """Handle a request; whether this thread is the one to read the next."""
        thread = self._thread
        self._turn = turn = self._turn + 1
        self._held[turn] = True
        self._pool.hold(self, turn)
        thread.holds = partial(self.let_go, turn)
        self._run(message)
        thread.holds = None
        return self._take_back(turn)

    def _run(self, message: Message) -> None:
        start = time.monotonic()
        self._deliver(message)
        if time.monotonic() - start > SLOW:
            self._wary = WARY

    def _take_back(self, turn: int) -> bool:
        """Is the link still held since ``turn``? It is not afterwards. (One thread gets True.)"""
        if not self._held.pop(turn, False):
            return False
        self._pool.released(self)
        return True

    def let_go(self, turn: int) -> None:
        """The handler takes long, or waits: others read."""
        if self._take_back(turn):
            self._others_read()

    def _others_read(self) -> None:
        self._link.stop_reading()
        self._arm()
        self._pool.may_block()
