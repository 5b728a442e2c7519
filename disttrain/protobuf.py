"""Protobuf's wire format: fields of messages as bytes. A message is its fields, one after the
other, in any order. Knows no message."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from .errors import SerializationError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types


def _key(field: int, wire: int) -> bytes:
    return _varint(field << 3 | wire)


def integer(field: int, value: int) -> bytes:
    """An integer, an enumerated value or a truth value."""
    return _key(field, _VARINT) + _varint(value & 0xFFFFFFFFFFFFFFFF)


def single(field: int, value: float) -> bytes:
    """A float; what is too large for 32 bits is infinite."""
    try:
        return _key(field, _FIXED32) + struct.pack("<f", value)
    except OverflowError:
        return _key(field, _FIXED32) + struct.pack(
            "<f", float("inf") if value > 0 else -float("inf")
        )


def double(field: int, value: float) -> bytes:
    """A double."""
    return _key(field, _FIXED64) + struct.pack("<d", value)


def doubles(field: int, values: Iterable[float]) -> bytes:
    """Many doubles, packed."""
    numbers = list(values)
    return nested(field, struct.pack(f"<{len(numbers)}d", *numbers))


def nested(field: int, value: bytes) -> bytes:
    """Bytes, or a message."""
    return _key(field, _BYTES) + _varint(len(value)) + value


def string(field: int, value: str) -> bytes:
    """A text."""
    return nested(field, value.encode())


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message in order, each its number and what it holds: a number, or the bytes
    of a text, a message, packed numbers, or of a float (4) or double (8)."""
    at, size = 0, len(data)
    while at < size:
        key, at = read_varint(data, at)
        wire = key & 7
        if wire == _VARINT:
            value, at = read_varint(data, at)
            yield key >> 3, value
            continue
        if wire == _BYTES:
            length, at = read_varint(data, at)
        elif wire in (_FIXED64, _FIXED32):
            length = 8 if wire == _FIXED64 else 4
        else:
            raise SerializationError(f"protobuf: wire type {wire} at byte {at}, which is none")
        if at + length > size:
            raise SerializationError(f"protobuf: a field of {length} bytes at byte {at} of {size}")
        yield key >> 3, data[at : at + length]
        at += length


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The whole number of 64 bits that begins at byte ``at``, and the place after it."""
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise SerializationError(f"protobuf: a number that does not end at byte {at}")


def signed(value: int) -> int:
    """The number of 64 bits with its sign."""
    return value - (1 << 64) if value >> 63 else value


def integers(field: int, values: Iterable[int]) -> bytes:
    """Many integers, packed."""
    return nested(field, b"".join(_varint(int(v) & 0xFFFFFFFFFFFFFFFF) for v in values))


def unpacked(data: bytes) -> list[int]:
    """The integers of ``integers``, with their signs."""
    out, at = [], 0
    while at < len(data):
        value, at = read_varint(data, at)
        out.append(signed(value))
    return out
