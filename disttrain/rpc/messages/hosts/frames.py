"""A message as frames of about a megabyte, and back.

    frame 1: answers u8, kind u8, links u16, arrays u32, call u64, table u64, head u64, payload u64,
             then the first bytes of the body
    others:  the bytes of the body that follow
    body:    table | head | payload | array | array ...
    table:   for each array: dtype u8, dims u8, and a u64 for every dimension

A small message is one frame. So is one whose arrays, and payload where it is large, are *beside*:
where ``links`` is not 0 they are on so many links, and the body ends before them. Frames of two
messages on one stream never mix. What a peer announces is held against the limits before anything
of that size is made. Pure: no transport, no thread.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator

import numpy as np

from ....comm.calls.header import DTYPES, dtype_code
from ....errors import CommError
from ..contract.message import MAX_DIMS, Limits, Message, check_arrays
from .buffers import ReceiveBuffers

FRAME = 1 << 20
BESIDE = 256 << 10  # from so many bytes on, arrays and payload go beside
_MEAN = 16 << 10  # unless there are too many of them: bytes of a part on average
LARGE = 64 << 10  # a payload that goes with the arrays
_HEADER = struct.Struct("<BBHIQQQQ")
_ARRAY = struct.Struct("<BB")
_TABLE_ROW = _ARRAY.size + 8 * MAX_DIMS


class Frames:
    """The frames of one message, made one after another while they are sent.

    ``size``: the bytes of all of them. Where that fits one frame, ``only`` is a copy of it;
    otherwise the frames are cut from the message's own memory as they are asked for. ``beside``:
    the parts that go on links where there are any, after ``announcement`` in place of the frames.
    """

    def __init__(self, message: Message, limits: Limits, where: str) -> None:
        array_bytes = check_arrays(message.arrays, where)
        self._message = message
        payload = memoryview(message.payload)
        head, size = len(message.head), payload.nbytes
        limits.check(head, size, len(message.arrays), array_bytes, where)
        self._table = b"".join(map(_row, message.arrays))
        self._payload = payload.cast("B")
        first = self._first(0)
        self.size = len(first) + size + array_bytes
        self._pieces = [memoryview(first), self._payload]
        self._pieces += map(_bytes_of, message.arrays)
        self.beside = [] if self.size < BESIDE else self._beside()
        self.only = None if self.beside or self.size > FRAME else b"".join(self._pieces)

    def _first(self, links: int) -> bytes:
        message = self._message
        sizes = (message.call, len(self._table), len(message.head), len(self._payload))
        counts = (int(message.answers), message.kind, links, len(message.arrays))
        return _HEADER.pack(*counts, *sizes) + self._table + message.head

    def _beside(self) -> list[memoryview]:
        """What is better sent beside the stream; empty where all of it goes in frames."""
        parts = self._pieces[2:]
        if len(self._payload) >= LARGE:
            parts.insert(0, self._payload)
        enough = sum(map(len, parts)) >= max(BESIDE, _MEAN * len(parts))
        return parts if enough and len(self._pieces[0]) + LARGE <= FRAME else []

    def announcement(self, links: int) -> bytes:
        """The one frame of a message whose ``beside`` goes on ``links`` links."""
        return self._first(links) + (self._payload if len(self._payload) < LARGE else b"")

    def __iter__(self) -> Iterator[bytes]:
        """Frames of ``FRAME`` bytes, the last one of what is left."""
        waiting: list[memoryview] = []
        have = 0
        for piece in self._pieces:
            while have + len(piece) >= FRAME:
                taken, piece = piece[: FRAME - have], piece[FRAME - have :]
                yield bytes(taken) if not waiting else b"".join((*waiting, taken))
                waiting, have = [], 0
            if piece:
                waiting.append(piece)
                have += len(piece)
        if waiting:
            yield b"".join(waiting)


def _row(array: np.ndarray) -> bytes:
    sizes = struct.pack(f"<{array.ndim}Q", *array.shape)
    return _ARRAY.pack(dtype_code(array.dtype), array.ndim) + sizes


def _bytes_of(array: np.ndarray) -> memoryview:
    """The memory of a C-contiguous array of any element type (ml_dtypes' have no buffers)."""
    return array.reshape(-1).view(np.uint8).data


class Assembler:
    """Makes messages of the frames of one stream. ``where`` begins its errors. ``buffers`` has
    memory for their arrays."""

    def __init__(self, limits: Limits, where: str, buffers: ReceiveBuffers | None = None) -> None:
        self._limits, self._where = limits, where
        self._buffers = ReceiveBuffers() if buffers is None else buffers
        self._message: Message | None = None
        self._targets: list[memoryview] = []  # the memory that the rest of the body goes to
        self._next = 0  # the target that is being filled
        self._filled = 0  # so many bytes of it are there
        self._table: memoryview | None = None
        self._sizes = (0, 0, 0)
        self.links = 0  # on so many links are the parts ``beside`` of the last message
        self.beside: list[memoryview] = []

    def add(self, frame: bytes) -> Message | None:
        """Take in one frame; the message where it is complete now, apart from what is ``beside``.

        Raises ``MessageTooLarge`` for what is over a limit and ``CommError`` for what no ``Frames``
        ever makes; the stream is of no use after that.
        """
        start = 0
        if self._message is None:
            start = self._begin(frame)
            count, head, payload = self._sizes
            if not count and not self.links and start + head + payload == len(frame):
                return self._small(frame, start, start + head)
        start = self._fill(frame, start)
        if self._table is not None and self._next == 1:
            self._lay_out(self._table)
            self._table = None
            start = self._fill(frame, start)
        if start != len(frame):
            raise self._broken(f"{len(frame) - start} bytes after the end of a message")
        if self._next < len(self._targets):
            return None
        message, self._message = self._message, None
        assert message is not None
        message.head = bytes(message.head)
        self._targets = []
        return message

    def _small(self, frame: bytes, head: int, payload: int) -> Message:
        """The message that this frame holds all of: most of them."""
        message, self._message = self._message, None
        assert message is not None
        self._table, self._targets = None, []
        message.head, message.payload = frame[head:payload], frame[payload:]
        return message

    def _begin(self, frame: bytes) -> int:
        if len(frame) < _HEADER.size:
            raise self._broken(f"a message of {len(frame)} bytes")
        fields = _HEADER.unpack_from(frame)
        answers, kind, links, count, call, table, head, payload = fields
        if answers > 1 or not count * _ARRAY.size <= table <= count * _TABLE_ROW:
            raise self._broken("a header that fits no message")
        self._limits.check(head, payload, count, 0, self._where)
        self._message = Message(kind, call, bool(answers))
        self._sizes = (count, head, payload)
        self.links, self.beside = links, []
        self._table = self._room(table)
        self._targets, self._next, self._filled = [self._table], 0, 0
        return _HEADER.size

    def _lay_out(self, table: memoryview) -> None:
        """Make room for the rest, as the table of the arrays says."""
        message = self._message
        assert message is not None
        count, head, payload = self._sizes
        rows = list(self._rows(bytes(table), count))
        total = sum(dtype.itemsize * math.prod(shape) for dtype, shape in rows)
        self._limits.check(head, payload, count, total, self._where)
        message.arrays = []
        head_room, payload_room = self._room(head), self._room(payload)
        self._targets.append(head_room)
        arrays_to = self.beside if self.links else self._targets
        (arrays_to if payload >= LARGE else self._targets).append(payload_room)
        for dtype, shape in rows:
            try:
                memory = self._buffers.take(math.prod(shape) * dtype.itemsize)
                array = memory.view(dtype).reshape(shape)
            except (MemoryError, ValueError):
                raise self._broken(f"an array of shape {shape}, too large for this host") from None
            arrays_to.append(memory.data)
            message.arrays.append(array)
        message.head, message.payload = head_room, payload_room  # type: ignore[assignment]

    def _rows(self, table: bytes, count: int) -> Iterator[tuple[np.dtype, tuple[int, ...]]]:
        at = 0
        for _ in range(count):
            if at + _ARRAY.size > len(table):
                raise self._broken("a table of arrays that is too short")
            code, dims = _ARRAY.unpack_from(table, at)
            at += _ARRAY.size
            if code >= len(DTYPES) or dims > MAX_DIMS or at + 8 * dims > len(table):
                raise self._broken("a table of arrays that cannot be read")
            shape = struct.unpack_from(f"<{dims}Q", table, at)
            at += 8 * dims
            yield DTYPES[code], shape
        if at != len(table):
            raise self._broken("a table of arrays that is too long")

    def _fill(self, frame: bytes, start: int) -> int:
        """Copy the frame's bytes from ``start`` on to where they belong; where that ended."""
        view, end = memoryview(frame), len(frame)
        while self._next < len(self._targets):
            target = self._targets[self._next]
            taken = min(end - start, len(target) - self._filled)
            target[self._filled : self._filled + taken] = view[start : start + taken]
            start += taken
            self._filled += taken
            if self._filled < len(target):
                break
            self._next, self._filled = self._next + 1, 0
        return start

    def _room(self, size: int) -> memoryview:
        try:  # memory that is not touched before it is filled, whatever a peer announces
            return np.empty(size, np.uint8).data
        except MemoryError:
            raise self._broken(f"{size} bytes, too many for this host") from None

    def _broken(self, what: str) -> CommError:
        return CommError(f"{self._where}: {what} came; this version of the protocol sends no such")
