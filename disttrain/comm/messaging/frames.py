"""How a message looks as bytes on one host: a packet, and what does not fit in it beside it.

    packet: what u8 | kind u8 | flags u8 | 0 | head bytes u32 | call u64 | payload bytes u64 |
            arrays u32 | body bytes u32 | place of the body u64 | place of the payload u64 | body
    body:   per array: dtype u8, dimensions u8, apart u8, 0, 0 u32, each dimension u64,
            place u64 where it is apart | head | payload | arrays, unless they are apart

Small parts travel in the packet. A large payload or array, and a body that is too large, are
*apart*: at an offset of memory that both sides see, or (``STREAMED``) in the packets that follow,
in this order: body, payload, arrays. Pure functions; every number that comes in is checked.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...errors import CommError
from ..header import DTYPES, dtype_code
from .message import MAX_DIMS, Bytes, Limits, Message

MESSAGE, PIECE = 1, 2
PACKET_BYTES = 96 << 10  # the longest packet
APART_BYTES = 48 << 10  # from here on an array or a payload is apart
PIECE_BYTES = 64 << 10
STREAMED = (1 << 64) - 1

_ANSWERS, _BODY_APART, _PAYLOAD_APART = 1, 2, 4
_HEAD = struct.Struct("<BBBxIQQIIQQ")
_ARRAY = struct.Struct("<BBBxI")
_U64 = struct.Struct("<Q")
HEAD_BYTES = _HEAD.size

Place = Callable[[np.ndarray], int]  # puts bytes (uint8) into shared memory: its offset or STREAMED
Find = Callable[[int, int], np.ndarray]  # (offset, bytes): that memory, as bytes (uint8)


class Garbage(CommError):
    """Bytes that no endpoint sends."""


def as_bytes(array: np.ndarray) -> np.ndarray:
    """A contiguous array as its bytes (uint8), without a copy."""
    return array.reshape(-1).view(np.uint8)


def encode(message: Message, place: Place) -> tuple[bytes, list[np.ndarray]]:
    """The packet of a message that is within its limits, and the bytes that must follow in pieces.

    ``place`` is asked for every part that is apart.
    """
    head, payload = message.head, message.payload
    flags = _ANSWERS if message.answers else 0
    pieces: list[np.ndarray] = []
    payload_at = 0
    size = len(payload) if isinstance(payload, bytes) else memoryview(payload).nbytes
    if size >= APART_BYTES:
        flags |= _PAYLOAD_APART
        payload_at = _put(np.frombuffer(payload, np.uint8), place, pieces)
        payload = b""
    if message.arrays:
        body = _array_body(message, place, pieces, head, payload)
    else:
        body = head + payload if head else bytes(payload)
    length, body_at = len(body), 0
    if length > PACKET_BYTES - HEAD_BYTES:
        flags |= _BODY_APART
        first: list[np.ndarray] = []
        body_at = _put(np.frombuffer(body, np.uint8), place, first)
        pieces, body = first + pieces, b""
    begin = _HEAD.pack(MESSAGE, message.kind, flags, len(head), message.call, size,
                       len(message.arrays), length, body_at, payload_at)  # fmt: skip
    return begin + body, pieces


def _put(part: np.ndarray, place: Place, pieces: list[np.ndarray]) -> int:
    at = place(part)
    if at == STREAMED:
        pieces.append(part)
    return at


def _array_body(
    message: Message, place: Place, pieces: list[np.ndarray], head: bytes, payload: Bytes
) -> bytes:
    told: list[Bytes] = []
    inline: list[Bytes] = [head, payload]
    for array in message.arrays:
        apart = array.nbytes >= APART_BYTES
        told.append(_ARRAY.pack(dtype_code(array.dtype), array.ndim, apart, 0))
        told.extend(map(_U64.pack, array.shape))
        if apart:
            told.append(_U64.pack(_put(as_bytes(array), place, pieces)))
        else:
            inline.append(array.tobytes())
    return b"".join(told + inline)


def pieces_of(parts: list[np.ndarray]) -> Iterator[bytes]:
    """The packets that carry what is streamed."""
    for part in parts:
        view = part.data
        for start in range(0, len(view), PIECE_BYTES):
            yield b"\x02" + bytes(view[start : start + PIECE_BYTES])


class Assembly:
    """One message while it comes: ``message`` is there once all of its pieces are.

    Raises ``Garbage`` and ``MessageTooLarge`` before it allocates anything.
    """

    __slots__ = ("_at", "_body", "_fields", "_find", "_limits", "_missing", "message")

    def __init__(self, packet: memoryview, find: Find, limits: Limits) -> None:
        if len(packet) < HEAD_BYTES:
            raise Garbage(f"a packet of {len(packet)} bytes")
        fields = _HEAD.unpack_from(packet)
        what, _, flags, head, _, payload, arrays, body, body_at, _ = fields
        if what != MESSAGE or flags > 7:
            raise Garbage(f"a packet of kind {what} with flags {flags}")
        limits.check(head, payload, arrays, 0, "a peer's message")
        inline = head + 8 * arrays + (0 if flags & _PAYLOAD_APART else payload)
        if body < inline:
            raise Garbage(f"a body of {body} bytes that should hold {inline}")
        self._fields, self._find, self._limits = fields, find, limits
        self._missing: list[np.ndarray] = []  # memory that pieces fill, in their order
        self._at = 0
        self._body: np.ndarray | None = None
        self.message: Message | None = None
        if not flags & _BODY_APART:
            if len(packet) != HEAD_BYTES + body:
                raise Garbage(f"a packet of {len(packet)} bytes with a body of {body}")
            self._parse(packet[HEAD_BYTES:])
        elif body_at != STREAMED:
            self._parse(find(body_at, body).data)
        else:
            if body > limits.payload_bytes + limits.head_bytes + 1024 * limits.arrays:
                raise Garbage(f"a body of {body} bytes")
            self._body = np.empty(body, np.uint8)
            self._missing.append(self._body)

    def add(self, piece: memoryview) -> None:
        """Take a packet that carries a piece."""
        data = piece[1:]
        if not self._missing or not len(data):
            raise Garbage("a piece of no message")
        part = self._missing[0]
        end = self._at + len(data)
        if end > len(part):
            raise Garbage(f"a piece that is {end - len(part)} bytes too long")
        part[self._at : end] = data
        self._at = end
        if end == len(part):
            self._at = 0
            del self._missing[0]
            if self._body is not None:
                body, self._body = self._body, None
                self._parse(body.data)
            elif not self._missing:
                self._finish()

    def _parse(self, body: memoryview) -> None:
        """Read the body and make or find the memory of everything."""
        _, kind, flags, head_len, call, payload_len, count, _, _, payload_at = self._fields
        at, specs = 0, []
        total = head_len + payload_len
        for _ in range(count):
            spec, at = _spec(body, at)
            total += spec[2]
            specs.append(spec)
        self._limits.check(head_len, payload_len, count, total - head_len - payload_len,
                           "a peer's message")  # fmt: skip
        end = at + head_len
        if end > len(body):
            raise Garbage("a body that ends in its head")
        head = bytes(body[at:end])
        payload: Any
        if flags & _PAYLOAD_APART:
            payload = self._memory(payload_at, payload_len)
        else:
            payload = bytes(body[end : end + payload_len])
            end += payload_len
        arrays = []
        for dtype, shape, nbytes, place in specs:
            if place is not None:
                raw = self._memory(place, nbytes)
            else:
                if end + nbytes > len(body):
                    raise Garbage("a body that ends in an array")
                raw = np.frombuffer(body[end : end + nbytes], np.uint8).copy()
                end += nbytes
            arrays.append(raw.view(dtype).reshape(shape))
        if end != len(body):
            raise Garbage(f"a body with {len(body) - end} bytes too many")
        self.message = Message(kind, call, bool(flags & _ANSWERS), head, payload, arrays)
        self._finish()

    def _finish(self) -> None:
        if self._missing:
            return
        message = self.message
        assert message is not None
        if isinstance(message.payload, np.ndarray):
            message.payload = message.payload.data

    @property
    def complete(self) -> bool:
        return not self._missing

    def _memory(self, at: int, nbytes: int) -> np.ndarray:
        if at != STREAMED:
            return self._find(at, nbytes)
        if not nbytes:
            raise Garbage("an empty part that is streamed")
        made = np.empty(nbytes, np.uint8)
        self._missing.append(made)
        return made


def _spec(body: memoryview, at: int) -> tuple[tuple[np.dtype, tuple[int, ...], int, Any], int]:
    """((dtype, shape, bytes, place), where the next one is): an array as the body tells it."""
    if at + _ARRAY.size > len(body):
        raise Garbage("a body that ends in the arrays' shapes")
    code, ndim, apart, zero = _ARRAY.unpack_from(body, at)
    at += _ARRAY.size
    if code >= len(DTYPES) or ndim > MAX_DIMS or apart > 1 or zero:
        raise Garbage(f"an array of element type {code} with {ndim} dimensions")
    if at + 8 * (ndim + apart) > len(body):
        raise Garbage("a body that ends in an array's shape")
    shape = struct.unpack_from(f"<{ndim}Q", body, at)
    at += 8 * ndim
    nbytes = math.prod(shape) * DTYPES[code].itemsize
    place = None
    if apart:
        place = _U64.unpack_from(body, at)[0]
        at += 8
        if not nbytes:
            raise Garbage("an empty array that is apart")
    return (DTYPES[code], shape, nbytes, place), at
