"""Who reads the answers that come on one link: a thread that waits for one of them, or the pool.

One thread at a time reads (it leads). Others who wait on the same link sleep until their answer has
come, or until they are to lead, because the leader has its answer and leaves. When answers are due
and nobody waits, the link is armed: the pool reads. So a caller that waits reads its answer itself,
and a callback runs though nobody waits. Knows links and threads; no peers.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable

from ....errors import CommError
from ..contract.message import Message
from .link import Link

PATIENCE = 0.1  # seconds after which one who waits looks about
_AT_ONCE = int(socket.MSG_DONTWAIT)


class Thread(threading.local):
    """``holds``: lets others read on the link on which nobody else does while this thread runs what
    came there."""

    holds: Callable[[], None] | None = None


class _Sleeper:
    """A thread that waits while another one reads."""

    __slots__ = ("call", "lock", "to_lead")

    def __init__(self, call: int) -> None:
        self.call, self.to_lead = call, False
        self.lock = threading.Lock()
        self.lock.acquire()


class Waiters:
    """``deliver`` takes answers; ``arm`` has the pool call ``attend`` when something has come;
    ``fail`` is told why nothing can come any more."""

    def __init__(
        self,
        link: Link,
        thread: Thread,
        deliver: Callable[[Message], None],
        arm: Callable[[], None],
        fail: Callable[[CommError], object],
    ) -> None:
        self._link, self._thread = link, thread
        self._deliver, self._arm, self._fail = deliver, arm, fail
        self._asleep: dict[_Sleeper, None] = {}
        self._armed = False
        self._leader = 0  # the thread that reads
        self._delivered = object()  # another one after every delivery

    # --- threads that wait -----------------------------------------------------------------------

    def waiter(self, call: int) -> Callable[[float], None]:
        """The ``block`` of one thread that waits for ``call`` (0: for anything)."""
        seen = self._delivered  # an answer that comes from here on is not overlooked
        sleeper = _Sleeper(call)
        reading = self._link.reading

        def block(seconds: float) -> None:
            nonlocal seen
            if reading.acquire(False) or self._sleep(sleeper, seconds, seen):
                self._lead(call, seconds, seen)
            seen = self._delivered

        return block

    def _sleep(self, sleeper: _Sleeper, seconds: float, seen: object) -> bool:
        """Sleep until something may have changed; True when this thread now leads."""
        reading = self._link.reading
        self._asleep[sleeper] = None
        leads = False
        if self._delivered is not seen or (leads := reading.acquire(False)):
            if self._unlist(sleeper):
                return leads
            sleeper.lock.acquire()  # somebody was about to wake us
        elif not sleeper.lock.acquire(timeout=max(0.0, seconds)):
            if self._unlist(sleeper):
                return False
            sleeper.lock.acquire()
        return leads or (sleeper.to_lead and reading.acquire(False))

    def _unlist(self, sleeper: _Sleeper) -> bool:
        """Whether nobody has woken the sleeper before."""
        try:
            del self._asleep[sleeper]
        except KeyError:
            return False
        return True

    def _wake(self, sleeper: _Sleeper, to_lead: bool) -> bool:
        if not self._unlist(sleeper):
            return False
        sleeper.to_lead = to_lead
        sleeper.lock.release()
        return True

    def _lead(self, call: int, seconds: float, seen: object) -> None:
        """Read and deliver until ``call`` is answered or ``seconds`` are over; then leave."""
        self._leader = threading.get_ident()
        try:
            if self._delivered is seen:  # nobody else has read it meanwhile
                self._read_for(call, seconds)
        except BlockingIOError:
            pass
        except CommError as error:
            self._end(error)
        finally:
            if self._leader == threading.get_ident():
                self._leave()

    def _read_for(self, call: int, seconds: float) -> None:
        end = time.monotonic() + seconds
        link = self._link
        at_once = seconds < PATIENCE
        if at_once:
            self._poll(seconds)
        while True:
            message = link.read(_AT_ONCE) if at_once else link.read_soon()
            if message is not None and (not self._hand_out(message) or call in (0, message.call)):
                return
            if time.monotonic() >= end:
                return

    def _poll(self, seconds: float) -> None:
        poll = select.poll()
        poll.register(self._link.fd, select.POLLIN)
        poll.poll(max(0.0, seconds) * 1000)

    def _hand_out(self, message: Message) -> bool:
        """Deliver an answer and wake who waits for it; does this thread still lead?"""
        thread = self._thread
        before, thread.holds = thread.holds, self.let_go
        try:
            self._deliver(message)
        finally:
            thread.holds = before
            self._delivered = object()
            if self._asleep:
                for sleeper in list(self._asleep):
                    if sleeper.call in (0, message.call):
                        self._wake(sleeper, False)
        return self._leader == threading.get_ident()

    def let_go(self) -> None:
        """The thread that delivers an answer begins to wait for something else: others lead."""
        self._thread.holds = None
        if self._leader == threading.get_ident():
            self._leave()

    def _leave(self) -> None:
        """Stop reading; see that somebody else does where answers are due."""
        self._leader = 0
        self._link.stop_reading()
        for sleeper in list(self._asleep):
            if self._wake(sleeper, True):
                return
        if self._link.due:
            self.arm()

    def _end(self, error: CommError) -> None:
        self._leader = 0
        self._link.stop_reading()
        self._fail(error)

    def wake_all(self) -> None:
        """Nothing will come any more: everybody looks at what became of its call."""
        self._delivered = object()
        for sleeper in list(self._asleep):
            self._wake(sleeper, False)

    # --- without one -----------------------------------------------------------------------------

    def look_out(self) -> None:
        """A request was sent and nobody waits for its answer yet."""
        if not self._armed and not self._link.reading.locked():
            self.arm()

    def arm(self) -> None:
        """Have the pool read what comes."""
        self._armed = True
        self._arm()

    def look_again(self) -> None:
        """Called now and then: nothing is to lie unread where answers are due and nobody reads.
        (Who said that it would wait for one may never have begun to: its deadline had passed, or
        it was interrupted. The answer may carry what must be given back.)"""
        self._link.look_back()
        if self._link.due and not self._link.reading.locked():
            self.arm()

    def attend(self) -> None:
        """Called by the pool when something has come, or the connection has ended."""
        self._armed = False
        if not self._link.reading.acquire(False):
            return  # who reads sees to the rest
        self._leader = threading.get_ident()
        try:
            while True:
                message = self._link.read(_AT_ONCE)
                if message is not None and not self._hand_out(message):
                    break
        except BlockingIOError:
            pass
        except CommError as error:
            self._end(error)
        finally:
            if self._leader == threading.get_ident():
                self._leave()
