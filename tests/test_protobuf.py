"""Protobuf's wire format, against bytes of its documentation."""

from __future__ import annotations

import struct

import pytest

from disttrain import protobuf
from disttrain.errors import SerializationError
from disttrain.protobuf import double, doubles, integer, nested, single, string


def test_examples_of_the_documentation():
    assert integer(1, 150) == b"\x08\x96\x01"
    assert string(2, "testing") == b"\x12\x07testing"
    assert nested(3, integer(1, 150)) == b"\x1a\x03\x08\x96\x01"


@pytest.mark.parametrize("value", [0, 127, 128, 1 << 32, (1 << 63) - 1])
def test_varints_are_seven_bits_a_byte(value):
    data = integer(1, value)[1:]
    assert sum((byte & 0x7F) << 7 * i for i, byte in enumerate(data)) == value
    assert all(byte & 0x80 for byte in data[:-1]) and not data[-1] & 0x80


def test_negative_numbers_take_ten_bytes():
    assert len(integer(1, -1)) == 11


def test_floats():
    assert double(1, 0.5) == b"\x09" + struct.pack("<d", 0.5)
    assert single(1, 0.5) == b"\x0d" + struct.pack("<f", 0.5)
    assert single(1, 1e300) == b"\x0d" + struct.pack("<f", float("inf"))
    assert doubles(1, [1.0, 2.0]) == b"\x0a\x10" + struct.pack("<2d", 1.0, 2.0)


def test_fields_are_read_as_they_were_written():
    packed = protobuf.integers(5, [1, -1, 1 << 40])
    data = protobuf.integer(1, -3) + protobuf.string(2, "ab") + protobuf.double(3, 1.0) + packed
    found = list(protobuf.fields(data))
    assert [number for number, _ in found] == [1, 2, 3, 5]
    assert protobuf.signed(found[0][1]) == -3 and found[1][1] == b"ab"
    assert protobuf.unpacked(found[3][1]) == [1, -1, 1 << 40]


@pytest.mark.parametrize("data", [b"\x0a\x05a", b"\x0b", b"\x08" + b"\xff" * 11, b"\x80"])
def test_what_is_no_message_is_refused(data):
    with pytest.raises(SerializationError, match="protobuf"):
        list(protobuf.fields(data))
