"""Structs of arguments: their text, their bytes, and addresses that are put into them."""

from __future__ import annotations

import numpy as np

from disttrain.backends.device.structs import (
    Field,
    Number,
    Operand,
    Pointer,
    dense,
    packed,
    record,
    struct,
)


def test_an_operand_of_an_array():
    o = Operand.of(np.zeros((2, 3, 4), np.float32)[:, ::2])
    assert o == Operand((2, 2, 4), (48, 32, 4), "float32") and o.size == 16


def test_dense_strides_pass_over_empty_dimensions():
    assert dense((2, 3, 4), 8) == (96, 32, 8)
    assert dense((2, 0, 4), 8) == (32, 32, 8)
    assert dense((), 8) == ()


def test_text_and_bytes_are_of_one_layout():
    fields = [Field("n", "i32"), Field("at", "u64"), Field("by", "f32", 3)]
    assert struct("a", fields) == "struct a {\n  int n;\n  dt_u64 at;\n  float by[3];\n};"
    kind = record(fields)
    assert [kind.fields[f.name][1] for f in fields] == [0, 8, 16]
    assert kind.itemsize == 32  # as a C compiler fills it up


def test_addresses_and_numbers_are_put_in():
    fields = [Field(name, "u64") for name in ("x", "s", "n", "k")] + [Field("both", "u64", 2)]
    values = {
        "x": Pointer(1, 8), "s": Pointer(-1, 4), "n": Number(0), "k": 7,
        "both": (Pointer(0), 3),
    }  # fmt: skip
    data = packed(fields, values, [1000, 2000], [5], scratch=500)
    assert np.frombuffer(data, np.uint64).tolist() == [2008, 504, 5, 7, 1000, 3]
