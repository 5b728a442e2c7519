"""How a message looks as bytes on one host: a packet, and what does not fit in it beside it.

    packet: what u8 | kind u8 | flags u8 | 0 | head bytes u32 | call u64 | payload bytes u64 |
            arrays u32 | body bytes u64 | place of the body u64 | place of the payload u64 | body
    body:   per array: dtype u8, dimensions u8, apart u8, 0, 0 u32, each dimension u64,
            place u64 where it is apart | head | payload | arrays, unless they are apart

Small parts travel in the packet. A large payload or array, and a body that is too large, are
*apart*: at an offset of memory that both sides see, or (``STREAMED``) in the packets that follow,
in this order: body, payload, arrays. Pure functions; every number that comes in is checked.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ....comm.calls.header import DTYPES, dtype_code
from ....errors import CommError
from ..contract.message import MAX_DIMS, Bytes, Limits, Message

MESSAGE, PIECE = 1, 2
PACKET_BYTES = 96 << 10  # the longest packet
APART_BYTES = 48 << 10  # from here on an array or a payload is apart
PIECE_BYTES = 64 << 10
STREAMED = (1 << 64) - 1

_ANSWERS, _BODY_APART, _PAYLOAD_APART = 1, 2, 4
_HEAD = struct.Struct("<BBBxIQQIQQQ")
_ARRAYS = [struct.Struct(f"<BBBxI{ndim}Q") for ndim in range(MAX_DIMS + 1)]
_SHAPES = [struct.Struct(f"<{ndim}Q") for ndim in range(MAX_DIMS + 1)]
_ARRAY_BYTES = _ARRAYS[0].size
_U64 = struct.Struct("<Q")
HEAD_BYTES = _HEAD.size

Place = Callable[[np.ndarray], int]  # puts bytes (uint8) into shared memory: its offset or STREAMED
Find = Callable[[int, int], np.ndarray]  # (offset, bytes): that memory, as bytes (uint8)


class Garbage(CommError):
    """Bytes that no endpoint sends."""


def as_bytes(array: np.ndarray) -> np.ndarray:
    """A contiguous array as its bytes (uint8), without a copy."""
    return array.reshape(-1).view(np.uint8)


def encode_small(message: Message, size: int) -> bytes:
    """The packet of a message without arrays whose head and payload (of ``size`` bytes) fit in."""
    head = message.head
    length = len(head)
    begin = _HEAD.pack(
        MESSAGE, message.kind, message.answers, length, message.call, size, 0, length + size, 0, 0
    )
    return begin + head + message.payload


def encode(message: Message, place: Place) -> tuple[bytes, list[np.ndarray]]:
    """The packet of a message that is within its limits, and the bytes that must follow in pieces.

    ``place`` is asked for every part that is apart.
    """
    head, payload = message.head, message.payload
    flags = _ANSWERS if message.answers else 0
    pieces: list[np.ndarray] = []
    payload_at = 0
    size = memoryview(payload).nbytes
    if size >= APART_BYTES:
        flags |= _PAYLOAD_APART
        whole = payload if memoryview(payload).c_contiguous else bytes(payload)
        payload_at = _put(np.frombuffer(whole, np.uint8), place, pieces)
        payload = b""
    body = _body(message.arrays, place, pieces, head, payload)
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


def _body(
    arrays: Sequence[np.ndarray],
    place: Place,
    pieces: list[np.ndarray],
    head: bytes,
    payload: Bytes,
) -> bytes:
    told: list[Bytes] = []
    inline: list[Bytes] = [head, payload]
    for array in arrays:
        shape = array.shape
        ndim, apart = len(shape), array.nbytes >= APART_BYTES
        told.append(_ARRAYS[ndim].pack(dtype_code(array.dtype), ndim, apart, 0, *shape))
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


def decode(packet: memoryview, find: Find, limits: Limits, small: int) -> Message | Assembly:
    """The message in a packet, or what waits for its pieces. Bodies of at most ``small`` bytes are
    within all limits.

    Raises ``Garbage`` and ``MessageTooLarge`` before it allocates anything.
    """
    if len(packet) < HEAD_BYTES:
        raise Garbage(f"a packet of {len(packet)} bytes")
    fields = _HEAD.unpack_from(packet)
    what, kind, flags, head, call, payload, arrays, body, body_at, _ = fields
    if what != MESSAGE or flags > 7:
        raise Garbage(f"a packet of kind {what} with flags {flags}")
    if not arrays and flags <= 1 and body <= small and len(packet) == HEAD_BYTES + body:
        if body != head + payload:
            raise Garbage(f"a body of {body} bytes that should hold {head + payload}")
        middle = HEAD_BYTES + head
        said = bytes(packet[HEAD_BYTES:middle]) if head else b""
        return Message(kind, call, flags == 1, said, bytes(packet[middle:]), [])
    inline = head + _ARRAY_BYTES * arrays + (0 if flags & _PAYLOAD_APART else payload)
    if body < inline:
        raise Garbage(f"a body of {body} bytes that should hold {inline}")
    if flags & _BODY_APART:
        limits.check(head, payload, arrays, 0, "a peer's message")
        if body_at == STREAMED:
            return Assembly(fields, find, limits)
        whole = find(body_at, body).data
    elif len(packet) != HEAD_BYTES + body:
        raise Garbage(f"a packet of {len(packet)} bytes with a body of {body}")
    else:
        whole = packet[HEAD_BYTES:]
    missing: list[np.ndarray] = []
    message = _parse(fields, whole, find, limits, missing)
    return Assembly(fields, find, limits, message, missing) if missing else message


class Assembly:
    """A message while its pieces come: first its body, where ``message`` is not given, then the
    ``missing`` parts of it."""

    __slots__ = ("_at", "_body", "_fields", "_find", "_limits", "_missing", "message")

    def __init__(
        self,
        fields: tuple,
        find: Find,
        limits: Limits,
        message: Message | None = None,
        missing: list[np.ndarray] | None = None,
    ) -> None:
        self._fields, self._find, self._limits = fields, find, limits
        self.message = message
        self._missing = [] if missing is None else missing  # memory that pieces fill, in order
        self._at = 0
        self._body: np.ndarray | None = None
        if message is None:
            body = fields[7]
            if body > limits.payload_bytes + limits.head_bytes + 1024 * limits.arrays:
                raise Garbage(f"a body of {body} bytes")
            self._body = np.empty(body, np.uint8)
            self._missing.append(self._body)

    def add(self, piece: memoryview) -> Message | None:
        """Take a packet that carries a piece; the message when it was the last one."""
        data = piece[1:]
        if not len(data):
            raise Garbage("an empty piece")
        part = self._missing[0]
        end = self._at + len(data)
        if end > len(part):
            raise Garbage(f"a piece that is {end - len(part)} bytes too long")
        part[self._at : end] = data
        self._at = end
        if end < len(part):
            return None
        self._at = 0
        del self._missing[0]
        if self._body is not None:
            body, self._body = self._body, None
            self.message = _parse(self._fields, body.data, self._find, self._limits, self._missing)
        return None if self._missing else self.message


def _parse(
    fields: tuple, body: memoryview, find: Find, limits: Limits, missing: list[np.ndarray]
) -> Message:
    """Read a body, and make or find the memory of everything; what pieces will fill is added to
    ``missing``."""
    _, kind, flags, head_len, call, payload_len, count, _, _, payload_at = fields
    specs, at, array_bytes = _specs(body, count)
    limits.check(head_len, payload_len, count, array_bytes, "a peer's message")
    end = at + head_len
    payload: Bytes
    if flags & _PAYLOAD_APART:
        payload = _memory(payload_at, payload_len, find, missing).data
    else:
        payload = bytes(body[end : end + payload_len])
        end += payload_len
    arrays = []
    try:
        for dtype, shape, nbytes, place in specs:
            if place is not None:
                raw = _memory(place, nbytes, find, missing)
                arrays.append(raw.view(dtype).reshape(shape))
            elif end + nbytes > len(body):
                raise Garbage("a body that ends in an array")
            elif nbytes:
                arrays.append(np.ndarray(shape, dtype, body, end).copy())
                end += nbytes
            else:
                arrays.append(np.empty(shape, dtype))
    except (ValueError, OverflowError):
        raise Garbage("an array of a shape that no array has") from None
    if end != len(body):
        raise Garbage(f"a body of {len(body)} bytes that should have {end}")
    head = bytes(body[at : at + head_len])
    return Message(kind, call, bool(flags & _ANSWERS), head, payload, arrays)


def _memory(at: int, nbytes: int, find: Find, missing: list[np.ndarray]) -> np.ndarray:
    if not nbytes:
        raise Garbage("an empty part that is apart")
    if at != STREAMED:
        return find(at, nbytes)
    made = np.empty(nbytes, np.uint8)
    missing.append(made)
    return made


Spec = tuple[np.dtype, tuple[int, ...], int, int | None]  # dtype, shape, bytes, place


def _specs(body: memoryview, count: int) -> tuple[list[Spec], int, int]:
    """The arrays as a body tells them, where it goes on, and their bytes."""
    specs: list[Spec] = []
    at, size, total = 0, len(body), 0
    for _ in range(count):
        if at + _ARRAY_BYTES > size:
            raise Garbage("a body that ends in the arrays' shapes")
        code, ndim, apart = body[at], body[at + 1], body[at + 2]
        if code >= len(DTYPES) or ndim > MAX_DIMS or apart > 1:
            raise Garbage(f"an array of element type {code} with {ndim} dimensions")
        at += _ARRAY_BYTES
        end = at + 8 * (ndim + apart)
        if end > size:
            raise Garbage("a body that ends in an array's shape")
        shape = _SHAPES[ndim].unpack_from(body, at)
        dtype = DTYPES[code]
        nbytes = math.prod(shape) * dtype.itemsize
        specs.append((dtype, shape, nbytes, _U64.unpack_from(body, end - 8)[0] if apart else None))
        at = end
        total += nbytes
    return specs, at, total
