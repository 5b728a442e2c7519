"""One connection: packets over a Unix socket that keeps their bounds, in both directions.

Knows packets and messages; not who is at the other end, and not which thread reads.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from collections.abc import Callable

import numpy as np

from .... import context
from ....errors import CommError
from ..contract.message import Limits, Message
from .blocks import Borrower, Lender
from .frames import (
    APART_BYTES,
    PACKET_BYTES,
    PIECE,
    PIECE_BYTES,
    STREAMED,
    Assembly,
    Find,
    Garbage,
    decode,
    encode,
    encode_small,
    pieces_of,
)
from .polling import AT_MOST, Polling

SEND_BUFFER = 1 << 20
MANY = 256  # answers that nobody has read yet take a good part of what a socket holds
LATELY = 30.0  # seconds
_PACKET_COSTS = 1024  # bytes of a socket's, at most, beside its own
# As plain numbers: to combine two of the socket module's flags takes longer than to send.
_AT_ONCE = int(socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
_IF_THERE = int(socket.MSG_DONTWAIT)
_ROOM = max(PACKET_BYTES, PIECE_BYTES + 1) + 64


class Closed(CommError):
    """The other side has closed the connection."""


class Link:
    """``sock`` is connected, of type SOCK_SEQPACKET, and belongs to the link from now on."""

    def __init__(
        self,
        sock: socket.socket,
        lender: Lender,
        to: Borrower,
        find: Find,
        limits: Limits,
        patience: float,
        when_over: Callable[[], None],
    ) -> None:
        """``patience``: seconds after which a read that finds nothing gives up. ``when_over`` is
        called when the descriptor has been given back."""
        sock.settimeout(None)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        timeval = struct.pack("ll", 0, int(patience * 1e6))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval)
        self.sock, self.fd = sock, sock.fileno()
        self._send, self._receive = sock.send, sock.recv_into
        self._lender, self._to = lender, to
        self._small, self._when_over = limits.small(), when_over
        self._find, self._limits = find, limits
        self.reading = threading.Lock()  # held by the one who reads
        self._sending, self._streaming = threading.Lock(), threading.Lock()
        self._room = bytearray(_ROOM)
        self._view = memoryview(self._room)
        self._assembly: Assembly | None = None
        self.sent = self.got = 0  # requests sent here, answers read here
        self._most_unread, self._longest, self._noted = MANY, 0, 0.0
        self._holds = sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // 2  # as the peer's
        self.closed = self._given_up = self.over = False
        self.looks = Polling()

    # --- sending ---------------------------------------------------------------------------------

    def send(self, message: Message, size: int) -> None:
        """Send a message whose payload has ``size`` bytes. Raises ``Closed``."""
        counts = not message.answers and message.call != 0
        if not message.arrays and size + len(message.head) < APART_BYTES:
            self._put(encode_small(message, size), counts)
        else:
            self._send_large(message, counts)

    def _send_large(self, message: Message, counts: bool) -> None:
        placed: list[int] = []

        def place(part: np.ndarray) -> int:
            at = self._lender.lend(part, self._to)
            if at != STREAMED:
                placed.append(at)
            return at

        try:
            packet, pieces = encode(message, place)
            if not pieces:
                self._put(packet, counts)
                return
            with self._streaming:  # pieces of one message at a time
                self._put(packet, counts)
                placed.clear()
                self._stream(pieces)
        except BaseException:
            for at in placed:
                self._lender.recall(at)
            raise

    def _stream(self, pieces: list[np.ndarray]) -> None:
        try:
            for piece in pieces_of(pieces):
                self._put(piece, False)
        except BaseException:  # half a message: what would follow could not be told from it
            self._shut()
            raise

    def _put(self, packet: bytes, counts: bool) -> None:
        while True:
            with self._sending:
                if self.closed:
                    raise Closed("the connection is closed")
                self.sent += counts  # before its answer can come: others must not miss one (due)
                try:
                    self._send(packet, _AT_ONCE)
                    return
                except BlockingIOError:
                    self.sent -= counts
                except OSError as error:
                    raise Closed(f"the connection broke ({error.strerror or error})") from None
            self._wait_for_room()

    def _wait_for_room(self) -> None:
        """The peer takes nothing more at the moment."""
        poll = select.poll()
        poll.register(self.fd, select.POLLOUT)
        room = False

        def block(seconds: float) -> None:
            nonlocal room
            room = bool(poll.poll(1 + 1000 * seconds)) or self.closed

        context.wait_until(
            lambda: room or self.closed, lambda: "a peer to take a message", None, block
        )

    # --- reading ---------------------------------------------------------------------------------

    def read(self, flags: int = 0) -> Message | None:
        """Take one packet; the message that it completes. The caller holds ``reading``.

        Raises ``BlockingIOError`` when there is none (with ``MSG_DONTWAIT`` at once, else after
        its patience), ``Closed`` at the end, ``Garbage`` and ``MessageTooLarge``.
        """
        if self.closed:
            raise Closed("the connection is closed")
        try:
            size = self._receive(self._room, 0, flags)
        except BlockingIOError:
            raise
        except OSError as error:
            raise Closed(f"the connection broke ({error.strerror or error})") from None
        if not size:
            raise Closed("its end of the connection was closed")
        if size > self._longest:
            self._note(size, max(1, min(MANY, self._holds // (size + _PACKET_COSTS))))
        try:
            message = self._parse(self._view[:size])
        except CommError:
            raise
        except Exception as error:  # such as no memory for what it announces
            raise Garbage(f"a message that could not be read ({error!r})") from error
        if message is None:
            return None
        if message.answers:
            self.got += 1
        return message

    def read_soon(self) -> Message | None:
        """As ``read()``, in less time where something comes soon: this looks a little while before
        it sleeps (``polling``). At every look others may have the interpreter."""
        looks = self.looks
        most = looks.now()
        if not most:
            return self.read()
        start = time.monotonic()
        for look in range(most):
            try:
                message = self.read(_IF_THERE)
            except BlockingIOError:
                if time.monotonic() - start > AT_MOST:
                    break
            else:
                if look:  # else it was there before
                    looks.found(look)
                return message
        looks.in_vain(look + 1)
        message = self.read()
        if time.monotonic() - start < AT_MOST:
            looks.missed()
        return message

    def _parse(self, packet: memoryview) -> Message | None:
        if packet[0] != PIECE:
            found = decode(packet, self._find, self._limits, self._small)
            if not isinstance(found, Assembly):
                return found
            if self._assembly is not None:
                raise Garbage("a message in pieces between the pieces of another")
            self._assembly = found
            self._note(_ROOM, 0)  # the next one may not fit either
            return None
        if self._assembly is None:
            raise Garbage("a piece of no message")
        last = self._assembly.add(packet)
        if last is not None:
            self._assembly = None
        return last

    @property
    def due(self) -> bool:
        """Are there requests that have not been answered?"""
        return self.sent > self.got

    @property
    def is_full(self) -> bool:
        """May so many answers lie unread that the peer could send no more? As far as one can tell
        by those that have come lately."""
        return self.sent - self.got >= self._most_unread

    def _note(self, longest: int, most_unread: int) -> None:
        self._longest, self._most_unread = longest, most_unread
        self._noted = time.monotonic()

    def look_back(self) -> None:
        """Called now and then: answers that were long a while ago say nothing any more."""
        if self._longest and time.monotonic() - self._noted > LATELY:
            self._note(0, MANY)

    # --- the end ---------------------------------------------------------------------------------

    def begin(self, watch: Callable[[], None]) -> None:
        """Have the descriptor watched, unless it was given up before."""
        with self._sending:
            if not self._given_up:
                watch()

    def watch_again(self, rearm: Callable[[int, int], None], events: int) -> None:
        """Have the descriptor watched again, unless it was given up: its number may be another's
        by now."""
        with self._sending:
            if not self._given_up:
                rearm(self.fd, events)

    def give_up(self, forget: Callable[[int], None]) -> None:
        """End the connection for good, once: ``forget`` the descriptor while it is no other one's,
        and give it back. Where somebody reads, he does that when he stops, which is soon."""
        with self._sending:
            if self._given_up:
                return
            self._given_up = True
            forget(self.fd)
        self._shut()
        self._close()

    def hang_up(self) -> None:
        """End the connection; what has come can still be read."""
        with self._sending:  # it is closed with it, so the descriptor is no other one's
            try:
                self.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def _shut(self) -> None:
        """Let nothing more through; who sends or reads here finds out at once."""
        self.closed = True
        self.hang_up()

    def _close(self) -> None:
        if not self.over and self.reading.acquire(False):
            self._assembly = None
            self._drain()
            with self._sending:
                self.sock.close()
            self.over = True
            self.reading.release()
            self._when_over()

    def _drain(self) -> None:
        """Let go of what has come and nobody will take: parts of it lie in the peer's memory."""
        try:
            while size := self.sock.recv_into(self._room, 0, socket.MSG_DONTWAIT):
                if self._room[0] != PIECE:
                    decode(self._view[:size], self._find, self._limits, 0)
        except (OSError, CommError):  # there is nothing more, or nothing that makes sense
            pass

    def stop_reading(self) -> None:
        """Release ``reading``."""
        self.reading.release()
        if self._given_up:
            self._close()
