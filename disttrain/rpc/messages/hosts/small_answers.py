"""Small answers between hosts, on a link: the caller is told with one change of threads, not four.

A call goes to its worker by gRPC; what answers it, where that is small, comes back on a link that
the answering worker has opened. Each answer is a frame (``frames``) after its length u32. Knows
links and frames; not what answers mean.
"""

from __future__ import annotations

import struct
import threading

from ....comm.sockets.link import Link
from ....errors import CommError
from ..contract.message import Limits, Message
from .frames import FRAME, Assembler

LANE = 3  # beside those of ``handshake``
_LENGTH = struct.Struct("<I")


class Answers:
    """The sending end."""

    def __init__(self, link: Link) -> None:
        self.link, self._lock = link, threading.Lock()

    def send(self, frame: bytes) -> None:
        """Send the one frame of an answer. Raises ``Closed``."""
        with self._lock:  # held for long only where the peer, which only notes what comes, is gone
            try:
                self.link.send(_LENGTH.pack(len(frame)) + frame)
            except BaseException:  # half an answer: what would follow could not be told from it
                self.link.shut()
                raise


class IncomingAnswers:
    """The receiving end, read by one thread at a time. Takes the place of a stream (``Incoming``)
    and of gRPC's object for it."""

    lane = LANE

    def __init__(self, link: Link, limits: Limits, where: str) -> None:
        self._link, self._where = link, where
        self._assembler = Assembler(limits, where)
        self._head = bytearray(_LENGTH.size)

    def read(self) -> Message:
        """The next answer. Raises ``Closed`` at the end, and ``CommError`` for what no peer
        sends."""
        self._link.wait()
        self._link.receive(memoryview(self._head))
        (length,) = _LENGTH.unpack(self._head)
        if length > FRAME:
            raise CommError(f"{self._where}: an answer of {length} bytes where small ones come")
        frame = bytearray(length)
        self._link.receive(memoryview(frame))
        message = self._assembler.add(bytes(frame))
        if message is None or self._assembler.links:
            raise CommError(f"{self._where}: a part of an answer where whole ones come")
        return message

    def over(self) -> None:
        """Nobody will read any more."""

    def is_active(self) -> bool:
        return not self._link.closed

    def cancel(self) -> None:
        self._link.shut()
