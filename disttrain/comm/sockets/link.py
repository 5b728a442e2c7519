"""A link in use: bytes in both directions, in their order, encrypted where it was opened so.

What is sent is read from its own memory, and what comes is written to where it belongs; the only
copies are the kernel's, and those that the cipher makes. TCP holds a sender back while nobody
receives. One thread at a time may send, and one receive.

A peer whose host is gone is noticed by TCP's own probes while nothing is on its way. There is no
such bound while it does not take what was sent: TCP cannot tell it from one that computes. Whoever
sends much keeps a link beside it on which nothing waits (``silence``), or asks for signs of life.
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import struct
import threading

from ... import context
from ...errors import CommError
from .encryption import LENGTH, MOST, OVERHEAD, Broken, Seal, record_size
from .handshake import Keys
from .pace import Losses

PATIENCE = 0.1  # seconds that a thread waits in the kernel before it looks about
# Seconds, seconds, and how many are lost in a row before the link has ended. Where one packet in
# twenty is lost, so is one probe in ten, or its answer: two in a row every two minutes, ten once in
# four hundred years.
PROBE_AFTER, PROBE_EVERY, PROBES = 1, 1, 10
_THIN = 16  # TCP_THIN_LINEAR_TIMEOUTS, which ``socket`` has no name for
_AT_ONCE = int(socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
_IN_TURN = int(socket.MSG_NOSIGNAL)
_LOOK_EVERY = 1000  # milliseconds
_MOST_AT_ONCE = 1 << 30  # bytes that the kernel takes or gives in one call

PEER_CLOSED = "its end of the connection was closed"


class Closed(CommError):
    """The link has ended. ``by_peer``: its other end has, as its kernel says."""

    def __init__(self, text: str, by_peer: bool = False) -> None:
        super().__init__(text)
        self.by_peer = by_peer


def _broken(error: OSError) -> Closed:
    by_peer = error.errno in (errno.ECONNRESET, errno.EPIPE)
    return Closed(f"the connection broke ({error.strerror or error})", by_peer)


class Link:
    """``sock`` is connected and belongs to the link from now on. ``number``: of the other end;
    ``said``: what it said when the link was opened. ``keys``: see ``handshake``;
    ``sealed``: whether there are any."""

    def __init__(self, sock: socket.socket, number: int, said: bytes, keys: Keys | None) -> None:
        self.sock, self.number, self.said = sock, number, said
        self.closed = False
        self.sealed = keys is not None
        if keys is not None:
            self._seals, self._opens = Seal(keys.sends), Seal(keys.receives)
            self._out = memoryview(bytearray(MOST + OVERHEAD))
            self._in = memoryview(bytearray(2 * (MOST + OVERHEAD)))
            self._spill = memoryview(bytearray(MOST))
        self._unsent: memoryview = memoryview(b"")  # of a record
        self._start = self._end = 0  # what has come and is still sealed
        self._left: memoryview = memoryview(b"")  # what was opened and nobody has taken yet
        self._closing = threading.Lock()
        self.losses = Losses(sock)
        sock.settimeout(None)
        patience = struct.pack("ll", 0, int(PATIENCE * 1e6))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(
            OSError
        ):  # a packet that is alone is sent again and again, as soon
            sock.setsockopt(socket.IPPROTO_TCP, _THIN, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_AFTER)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_EVERY)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)

    def silence(self, seconds: float) -> None:
        """End the link when what was sent has not been acknowledged for so long. Only for links
        whose other end takes what comes at once: a full one is taken for a dead one."""
        milliseconds = int(seconds * 1000)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)

    def fileno(self) -> int:
        return self.sock.fileno()

    # --- all of it -------------------------------------------------------------------------------

    def send(self, *parts: memoryview | bytes) -> None:
        """Send all of ``parts`` (contiguous), one after another; waits for room. Their memory may
        be changed again when it returns. Raises ``Closed``."""
        for part in parts:
            view = memoryview(part).cast("B")
            while len(view):
                done = self.push(view, _IN_TURN)
                view = view[done:]
                if not done:
                    self._wait(select.POLLOUT, "to take what is sent")
        while not self.flush(_IN_TURN):
            self._wait(select.POLLOUT, "to take what is sent")

    def receive(self, into: memoryview) -> None:
        """Fill ``into`` (contiguous, writable); waits for it. Raises ``Closed``, and ``Broken``."""
        view = into.cast("B")
        while len(view):
            done = self.pull(view, _IN_TURN)
            view = view[done:]
            if not done:
                self._wait(select.POLLIN, "to send")

    def wait(self) -> None:
        """Sleep until something has come, or the link has ended: for threads that do nothing else,
        and wait for as long as it takes."""
        fd = self.sock.fileno()
        if fd >= 0 and not (len(self._left) or self._end > self._start or self.closed):
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            # Now and then it is seen whether the number is still this link's: who closes it while a
            # thread is here does not wake that, and the number is used again.
            while not (poll.poll(_LOOK_EVERY) or self.closed):
                pass

    def _wait(self, events: int, what: str) -> None:
        fd, come = self.sock.fileno(), False
        if fd < 0:  # closed just now
            return
        poll = select.poll()
        poll.register(fd, events)

        def block(seconds: float) -> None:
            nonlocal come
            come = bool(poll.poll(1 + 1000 * seconds))

        context.wait_until(
            lambda: come or self.closed, lambda: f"number {self.number} {what}", None, block
        )

    # --- what goes at once -----------------------------------------------------------------------

    def push(self, view: memoryview, flags: int = _AT_ONCE) -> int:
        """Send some of ``view``: how many bytes of it are taken, 0 where there is no room now. What
        is taken may still have to be flushed."""
        if not self.sealed:
            return self._put(view[:_MOST_AT_ONCE], flags)
        if not self.flush(flags):
            return 0
        taken = view[:MOST]
        self._unsent = self._out[: self._seals.seal(taken, self._out)]
        self.flush(flags)
        return len(taken)

    def flush(self, flags: int = _AT_ONCE) -> bool:
        """Send what ``push`` has taken and not yet sent; whether that is all."""
        while len(self._unsent):
            done = self._put(self._unsent, flags)
            if not done:
                return False
            self._unsent = self._unsent[done:]
        return True

    def pull(self, view: memoryview, flags: int = _AT_ONCE) -> int:
        """Fill some of ``view`` (not empty) from its start: how many bytes, 0 where nothing has
        come. Raises ``Closed`` at the end, and ``Broken``."""
        if not self.sealed:
            return self._take(view[:_MOST_AT_ONCE], flags)
        if not len(self._left):
            if not self._next(flags):
                return 0
            size = record_size(self._in[self._start : self._start + LENGTH.size])
            record = self._in[self._start : self._start + size]
            self._start += size
            inside = size - OVERHEAD
            direct = inside <= len(view)
            opened = view[:inside] if direct else self._spill[:inside]
            try:
                self._opens.open(record, opened)
            except Broken:  # nothing that follows is to be believed either
                self.shut()
                raise
            if direct:
                return inside
            self._left = opened
        size = min(len(view), len(self._left))
        view[:size] = self._left[:size]
        self._left = self._left[size:]
        return size

    def _next(self, flags: int) -> bool:
        """See that a whole record is there; False where it has not come."""
        while True:
            have = self._end - self._start
            if have >= LENGTH.size:
                size = record_size(self._in[self._start : self._start + LENGTH.size])
                if have >= size:
                    return True
                if self._start + size > len(self._in):
                    self._in[:have] = self._in[self._start : self._end]
                    self._start, self._end = 0, have
            elif not have:
                self._start = self._end = 0
            elif self._start + LENGTH.size > len(self._in):
                self._in[:have] = self._in[self._start : self._end]
                self._start, self._end = 0, have
            done = self._take(self._in[self._end :], flags)
            if not done:
                return False
            self._end += done

    def _put(self, view: memoryview, flags: int) -> int:
        if self.closed:
            raise Closed("the link is closed")
        try:
            return self.sock.send(view, flags)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise _broken(error) from None

    def _take(self, view: memoryview, flags: int) -> int:
        if self.closed:
            raise Closed("the link is closed")
        try:
            size = self.sock.recv_into(view, 0, flags)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise _broken(error) from None
        if not size:
            raise Closed(PEER_CLOSED, by_peer=True)
        return size

    # --- the end ---------------------------------------------------------------------------------

    def shut(self) -> None:
        """End the link: whoever sends or receives here finds out at once. From any thread; the
        descriptor is given back by ``close``."""
        self.closed = True
        with self._closing:
            try:
                self.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self) -> None:
        """Give the descriptor back, when no thread sends or receives any more. What was sent before
        still arrives."""
        self.closed = True
        with self._closing:
            self.sock.close()
