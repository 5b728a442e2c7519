"""One peer's end of this rank's links: what is still to be sent, and what has come.

A pipe has two links. Frames go over the first, in their order. Over the second goes nothing but a
sign of life now and then, which the peer's kernel acknowledges whatever the peer itself does: so a
host that is gone is told from a peer that computes and lets the first link run full.

What is sent is read from its own memory and what comes is written to where it belongs, without
copies in between. Never waits. Knows links and frames; what a frame means is its owner's
(``net``) affair.
"""

from __future__ import annotations

import contextlib
import socket
from collections import deque
from typing import Any, Protocol

from .... import context
from ....errors import CommError
from ...sockets.link import PEER_CLOSED, Closed, Link
from . import frames

SILENCE = 3.5  # seconds in which the peer's host acknowledges a sign of life
_JOINED = 72 << 10  # data up to here is put behind its head: its copy costs less than a call
_SMALL = 32 << 10  # data up to here is taken out of one buffer
_ROOM = 128 << 10
_TASTE = 16 << 10  # what is read where a head is due: the data of a large frame is not copied
_MOST_WORDS = 64
_SEND_BYTES = 4 << 20
_AT_MOST = 8 << 20  # bytes that are taken in one go, so that others' come too


class Garbage(CommError):
    """A peer has sent what makes no sense."""


class Taker(Protocol):
    """Who takes frames: both are called in the order of frames."""

    def target(self, rank: int, kind: int, index: int, where: int, size: int) -> memoryview:
        """Where the ``size`` bytes of a frame belong. Raises ``Garbage``."""
        ...

    def taken(self, rank: int, kind: int, index: int, where: int, words: Any) -> None:
        """They are there. ``words``: pairs (place, value). Raises ``Garbage``."""
        ...


class Pipe:
    """Links to and from ``rank``. One thread at a time."""

    def __init__(self, rank: int, link: Link, pulse: Link, taker: Taker) -> None:
        self.rank, self.link, self.pulse, self._taker = rank, link, pulse, taker
        self.open = self._flushed = True
        self.said_bye: int | None = None  # whether well, once it has
        self._until = 0.0  # when what it has said before its end is to be here
        self._queue: deque[Any] = deque()  # of memoryviews, and bytearrays that heads go to
        self._room = bytearray(_ROOM)
        self._view = memoryview(self._room)
        self._start = self._end = 0
        self._into: memoryview = self._view[:0]  # what is missing of a large frame
        self._frame: tuple = ()
        self._sealed = link.sealed
        for sock in (link.sock, pulse.sock):  # signs of life tell sooner, and while somebody waits
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 0)
        pulse.silence(SILENCE)
        # A new connection takes 16 KB at a time, and every wait for more room is a sleep.
        link.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)

    def hand_over(self, rank: int, taker: Taker) -> None:
        """It is the pipe of ``rank`` and of ``taker`` from now on."""
        self.rank, self._taker = rank, taker

    # --- sending ---------------------------------------------------------------------------------

    def add(self, head: bytes, data: Any = b"") -> None:
        """Queue a frame. ``data``: a contiguous buffer of bytes; where it is large it is read when
        it is sent, and must stay as it is until ``idle``."""
        queue = self._queue
        if not queue or type(queue[-1]) is not bytearray:
            queue.append(bytearray())
        queue[-1] += head
        if len(data) <= _JOINED:
            queue[-1] += memoryview(data)
        else:
            queue.append(memoryview(data))

    @property
    def idle(self) -> bool:
        """Whether the kernel has taken all that was to be sent."""
        return (self._flushed and not self._queue) or not self.open

    def go(self) -> None:
        """Send as much as there is room for. Raises ``Closed``."""
        queue, push = self._queue, self.link.push
        while queue and self.open:
            part = queue[0]
            done = push(memoryview(part))
            if done == len(part):
                queue.popleft()
            elif done:
                queue[0] = memoryview(part)[done:]
            else:
                break
        self._flushed = self.link.flush() if self.open else True

    def beat(self) -> None:
        """Give a sign of life, and see how the link fares. Raises ``Closed``."""
        if not self.open:
            return
        if not self.pulse.closed:
            self.link.losses.look()
            self.pulse.push(memoryview(frames.PULSE_FRAME))
        elif context.now() > self._until:
            raise Closed(PEER_CLOSED, by_peer=True)

    # --- receiving -------------------------------------------------------------------------------

    def hear(self) -> None:
        """Take the peer's signs of life. Raises ``Closed``."""
        while self.pulse.pull(memoryview(bytearray(1024))):
            pass

    def receive(self) -> None:
        """Take what has come. Raises ``Closed`` and ``Garbage``."""
        pull, left = self.link.pull, _AT_MOST
        while left > 0:
            into = self._into
            if len(into):
                size = pull(into)
                if not size:
                    return
                self._into = into[size:]
                if size == len(into):
                    self._taken()
            else:
                size = pull(self._view[self._end : self._end + _TASTE])
                if not size:
                    return
                self._end += size
                self._parse()
                if size < _TASTE and not self._sealed and not len(self._into):
                    return
            left -= size

    def _parse(self) -> None:
        """Take out the frames that are whole, and begin with a large one."""
        view, head = self._view, frames.HEAD
        while self._end - self._start >= head.size:
            kind, _, count, index, where, size = head.unpack_from(view, self._start)
            if count > _MOST_WORDS:
                raise Garbage(f"a frame with {count} words")
            at = self._start + head.size
            begin = at + frames.WORD.size * count
            if begin > self._end or (size <= _SMALL and begin + size > self._end):
                break
            words = frames.WORD.iter_unpack(view[at:begin]) if count else ()
            target = self._taker.target(self.rank, kind, index, where, size)
            have = min(size, self._end - begin)
            target[:have] = view[begin : begin + have]
            self._start = begin + have
            if have < size:
                self._frame = (kind, index, where, list(words))
                self._into = target[have:]
            else:
                self._taker.taken(self.rank, kind, index, where, words)
        if self._start == self._end:
            self._start = self._end = 0
        elif _ROOM - self._end < 2 * _SMALL:  # what is left is less than that
            rest = bytes(view[self._start : self._end])
            view[: len(rest)] = rest
            self._start, self._end = 0, len(rest)

    def _taken(self) -> None:
        frame, self._frame = self._frame, ()
        self._taker.taken(self.rank, *frame)

    # --- the end ---------------------------------------------------------------------------------

    def outlive_pulse(self) -> None:
        """The peer has closed both links. The end of the second one came first: what was said over
        the first one, packets of which may have been lost, is still on its way."""
        self.pulse.close()
        self._until = context.now() + SILENCE

    def disown(self) -> None:
        """Give the descriptors back in a process forked from this one, for which what lies unread
        in the kernel is."""
        self.open = False
        for link in (self.link, self.pulse):
            link.close()

    def close(self) -> None:
        """Give the descriptors back. What was sent still arrives."""
        self.open = False
        self._queue.clear()
        for link in (self.link, self.pulse):
            with contextlib.suppress(Closed):
                if not link.closed and not self._sealed:
                    link.pull(self._view)  # unread, it would make the kernel break the connection
            link.close()
