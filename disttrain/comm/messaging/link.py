"""One connection: packets over a Unix socket that keeps their bounds, in both directions.

Knows packets and messages; not who is at the other end, and not which thread reads.
"""

from __future__ import annotations

import select
import socket
import struct
import threading

import numpy as np

from ... import context
from ...errors import CommError
from .blocks import Borrower, Lender
from .frames import (
    MESSAGE,
    PACKET_BYTES,
    PIECE,
    PIECE_BYTES,
    STREAMED,
    Assembly,
    Find,
    Garbage,
    encode,
    pieces_of,
)
from .message import Limits, Message

SEND_BUFFER = 1 << 20
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
    ) -> None:
        """``patience``: seconds after which a read that finds nothing gives up."""
        sock.settimeout(None)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        timeval = struct.pack("ll", 0, int(patience * 1e6))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval)
        self.sock, self.fd = sock, sock.fileno()
        self._lender, self._to = lender, to
        self._find, self._limits = find, limits
        self.reading = threading.Lock()  # held by the one who reads
        self._sending, self._streaming = threading.Lock(), threading.Lock()
        self._room = bytearray(_ROOM)
        self._view = memoryview(self._room)
        self._assembly: Assembly | None = None
        self.sent = self.got = 0  # requests sent here, answers read here
        self.closed = False

    # --- sending ---------------------------------------------------------------------------------

    def send(self, message: Message) -> None:
        """Send a message. Raises ``Closed``."""
        placed: list[int] = []

        def place(part: np.ndarray) -> int:
            at = self._lender.lend(part, self._to)
            if at != STREAMED:
                placed.append(at)
            return at

        packet, pieces = encode(message, place)
        counts = not message.answers and message.call != 0
        try:
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
            self.shut()
            raise

    def _put(self, packet: bytes, counts: bool) -> None:
        while True:
            with self._sending:
                if self.closed:
                    raise Closed("the connection is closed")
                try:
                    self.sock.send(packet, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
                except BlockingIOError:
                    pass
                except OSError as error:
                    raise Closed(f"the connection broke ({error.strerror or error})") from None
                else:
                    self.sent += counts
                    return
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
            size = self.sock.recv_into(self._room, 0, flags)
        except BlockingIOError:
            raise
        except OSError as error:
            raise Closed(f"the connection broke ({error.strerror or error})") from None
        if not size:
            raise Closed("its end of the connection was closed")
        what, packet = self._room[0], self._view[:size]
        if what == MESSAGE and self._assembly is None:
            assembly = Assembly(packet, self._find, self._limits)
        elif what == PIECE and self._assembly is not None:
            assembly = self._assembly
            assembly.add(packet)
        elif what == MESSAGE:  # a whole one between the pieces of another
            assembly = Assembly(packet, self._find, self._limits)
            if not assembly.complete:
                raise Garbage("a message in pieces between the pieces of another")
            return self._taken(assembly)
        else:
            raise Garbage(f"a packet of kind {what}")
        self._assembly = None if assembly.complete else assembly
        return self._taken(assembly) if assembly.complete else None

    def _taken(self, assembly: Assembly) -> Message:
        message = assembly.message
        assert message is not None
        self.got += message.answers
        return message

    @property
    def due(self) -> bool:
        """Are there requests that have not been answered?"""
        return self.sent > self.got

    # --- the end ---------------------------------------------------------------------------------

    def shut(self) -> None:
        """Let nothing more through; who sends or reads here finds out at once."""
        self.closed = True
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self) -> None:
        """After ``shut``: give the descriptor back. Where somebody reads, he does it when he stops
        (``stop_reading``), which is soon."""
        if self.reading.acquire(False):
            self._assembly = None
            self._drain()
            with self._sending:
                self.sock.close()
            self.reading.release()

    def _drain(self) -> None:
        """Let go of what has come and nobody will take: parts of it lie in the peer's memory."""
        try:
            while size := self.sock.recv_into(self._room, 0, socket.MSG_DONTWAIT):
                if self._room[0] == MESSAGE:
                    Assembly(self._view[:size], self._find, self._limits)
        except (OSError, CommError):  # there is nothing more, or nothing that makes sense
            pass

    def stop_reading(self) -> None:
        """Release ``reading``."""
        self.reading.release()
        if self.closed:
            self.close()
