"""Protobuf's wire format: fields of messages as bytes. A message is its fields, one after the
other, in any order. Knows no message."""

from __future__ import annotations

import struct
from collections.abc import Iterable

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
