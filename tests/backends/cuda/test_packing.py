"""Structs packed from kept bytes: the same bytes as those made by numpy's record of the fields."""

from __future__ import annotations

import math

import numpy as np
import pytest

from disttrain.backends.cuda.packing import Layout, StructMemory
from disttrain.backends.device.structs import Field, Number, Pointer, packed, record

FIELDS = [
    Field("p0", "u64"),
    Field("n", "u32"),  # a gap follows
    Field("p1", "u64"),
    Field("sizes", "i32", 3),
    Field("lr", "f32"),
    Field("flag", "bool"),
    Field("beta", "f64"),
    Field("step", "i64"),
    Field("scratch", "u64"),
    Field("many", "u64", 2),
]
VALUES = {
    "p0": Pointer(0),
    "n": 7,
    "p1": Pointer(1, 64),
    "sizes": (1, -2, 3),
    "lr": Number(0),
    "flag": 1,
    "beta": Number(1),
    "step": Number(2),
    "scratch": Pointer(-1, 256),
    "many": (Pointer(1), Pointer(0, 8)),
}


def bytes_of(fields, values, addresses, numbers, scratch=0):
    layout = Layout(fields, values, len(addresses), len(numbers))
    room = StructMemory(layout.size)
    layout.write(room, addresses, numbers, scratch)
    return room.bytes.tobytes()


def test_all_kinds_of_members_are_packed_as_a_compiler_lays_them_out():
    numbers = [0.1, 0.2, 5]
    got = bytes_of(FIELDS, VALUES, [4096, 8192], numbers, 1 << 40)
    assert got == packed(FIELDS, VALUES, [4096, 8192], numbers, 1 << 40)


def test_a_layout_serves_other_arrays_and_numbers():
    layout = Layout(FIELDS, VALUES, 2, 3)
    room = StructMemory(layout.size)
    for k in range(3):
        arrays, numbers = [k * 16, k * 32], [k / 7, -k / 3, k - 1]
        layout.write(room, arrays, numbers, k * 512)
        assert room.bytes.tobytes() == packed(FIELDS, VALUES, arrays, numbers, k * 512)


@pytest.mark.parametrize(
    "fields, values",
    [
        ([Field("n", "u32")], {"n": 3}),  # one constant alone
        ([Field("p", "u64")], {"p": Pointer(0)}),
        ([Field("a", "f32"), Field("b", "f32")], {"a": Number(1), "b": Number(0)}),
        ([Field("p", "u64"), Field("a", "f32")], {"p": Pointer(0), "a": Number(1)}),
    ],
)
def test_short_structs(fields, values):
    got = bytes_of(fields, values, [64], [1.5, 2.5])
    want = packed(fields, values, [64], [1.5, 2.5])
    assert got[: len(want)] == want[: len(got)]


def test_the_memory_is_aligned_and_known_to_the_driver_by_its_address():
    for size in (1, 8, 100):
        room = StructMemory(size)
        assert room.bytes.ctypes.data % 16 == 0 and room.bytes.size == size
        assert room.pointer[0] == room.bytes.ctypes.data
        assert room.address == room.pointer.ctypes.data


@pytest.mark.parametrize("value", [1e39, -1e39, math.inf, 3.5e38])
def test_numbers_beyond_float32_are_infinite(value):
    fields = [Field("p", "u64"), Field("x", "f32"), Field("k", "i64")]
    values = {"p": Pointer(0), "x": Number(0), "k": Number(1)}
    got = np.frombuffer(bytes_of(fields, values, [8], [value, 3]), record(fields))[0]
    assert got["x"] == math.copysign(math.inf, value) and got["k"] == 3 and got["p"] == 8


def test_a_number_that_rounds_to_the_largest_is_the_largest():
    """Also where a neighbour is beyond it."""
    largest = float(np.finfo(np.float32).max)
    fields = [Field("x", "f32"), Field("y", "f32")]
    values = {"x": Number(0), "y": Number(1)}
    for other in (1.0, 1e39):
        got = bytes_of(fields, values, [], [largest * (1 + 1e-9), other])
        assert np.frombuffer(got, np.float32)[0] == largest


def test_a_double_keeps_what_float32_cannot_hold_where_a_neighbour_overflows():
    fields = [Field("x", "f32"), Field("y", "f64")]
    values = {"x": Number(0), "y": Number(1)}
    got = np.frombuffer(bytes_of(fields, values, [], [1e39, 1e300]), record(fields))[0]
    assert got["x"] == math.inf and got["y"] == 1e300


@pytest.mark.parametrize("kind", ["i32", "u32", "i64", "u64", "int32", "int64"])
@pytest.mark.parametrize("value", [2**31, -1, 2**63, 2**64 - 1, -(2**31) - 1, 5])
def test_integers_wrap(kind, value):
    fields = [Field("k", kind)]
    bits = 64 if "64" in kind else 32
    got = np.frombuffer(bytes_of(fields, {"k": Number(0)}, [], [value]), record(fields))[0]["k"]
    assert int(got) % 2**bits == value % 2**bits


def test_a_float_given_for_an_integer_is_cut():
    fields = [Field("k", "i32"), Field("u", "u64")]
    values = {"k": Number(0), "u": Number(1)}
    got = np.frombuffer(bytes_of(fields, values, [], [2.9, 3.0]), record(fields))[0]
    assert (got["k"], got["u"]) == (2, 3)
