"""What flat and row kernels share: neutral elements of folds, row values, positions by axes."""

from __future__ import annotations

import re

import numpy as np
import pytest

from disttrain.backends.cuda.codegen.forms import Form
from disttrain.backends.cuda.codegen.layout import divider
from disttrain.backends.cuda.codegen.loops import (
    axis_fields,
    fold_type,
    identity,
    named_types,
    nan,
    offsets,
)
from disttrain.backends.lang.expr import var
from disttrain.backends.lang.kernel import Array, Kernel, Let, Loop, Put, Reduce, Store


def test_identities_change_nothing():
    assert identity("sum", "float32") == "-0x0.0p+0f"  # -0 + -0 is -0; 0 + -0 would be 0
    assert identity("sum", "int64") == "((dt_i64)0ull)"
    for op in ("max", "maxnum"):
        assert identity(op, "float32") == "__uint_as_float(0xff800000u)"  # -inf
        assert identity(op, "int32") == f"((int){2**31}u)"
        assert identity(op, "int64") == f"((dt_i64){2**63}ull)"
    assert identity("min", "float64") == "__longlong_as_double(0x7ff0000000000000ll)"
    assert identity("min", "int32") == f"((int){2**31 - 1}u)"
    assert fold_type("bool") == "int32" and fold_type("float64") == "float64"


def test_nothing_there_is_nan_or_zero():
    assert nan("float32") == "__uint_as_float(0x7fc00000u)"
    assert nan("int32") == "((int)0u)" and nan("bool") == "false"


def test_row_values_get_types_and_slots_in_order():
    k = Kernel(
        "k",
        (Array("x", "float64"), Array("b", "bool"), Array("y", "float32", writes=True)),
        (
            Loop((Reduce("s", "sum", var("x")), Reduce("any", "max", var("b")))),
            Let("n", var("any") * 2),
            Loop((Store("y", var("s")),)),
            Put("y", var("n")),
        ),
    )
    types, slots = named_types(k)
    assert slots == {"s": 0, "any": 1, "n": 2}
    assert [types.names[n] for n in slots] == ["float64", "bool", "int64"]


def run_offsets(lines, names, position, sizes, strides):
    """The statements as Python: what ``o{i}`` are at ``position``."""
    space = {"r": position}
    for line in lines:
        line = line.strip("{ ").rstrip(";")
        line = re.sub(r"\b(const |unsigned |dt_u64 |int |dt_i64 )", "", line)
        line = re.sub(r"\((?:int|dt_i64)\)", "", line)
        line = re.sub(r"a\.t(\d)\[(\d)\]", lambda m: str(strides[int(m[1])][int(m[2])]), line)
        line = re.sub(r"a\.size\[(\d)\]", lambda m: str(sizes[int(m[1])]), line)
        line = re.sub(r"dt_div\(q, a\.mul\[(\d)\], a\.shift\[\d\]\)", r"div(q, \1)", line)
        line = line.replace("/", "//").replace(", c = ", "; c = ")
        space["div"] = lambda q, k: divided(q, sizes[k])
        if line != "}":
            exec(line, space)
    return [space[f"o{i}"] for i in names]


def divided(n, d):
    multiplier, shift = divider(d)
    return (((n * multiplier) >> 32) + n) >> shift


@pytest.mark.parametrize("wide", [False, True])
def test_offsets_take_a_position_apart_from_the_last_axis_to_the_first(wide):
    sizes, strides = (3, 4, 5), {0: (400, -16, 4), 2: (0, 8, 80)}
    form = Form("rows", dims=3, wide=wide)
    lines = offsets([(i, Array(f"x{i}", "float32")) for i in strides], 3, form, "r")
    assert sum("{" in line for line in lines) == sum(line == "}" for line in lines) == 3
    for position, at in enumerate(np.ndindex(*sizes)):
        want = [sum(c * s for c, s in zip(at, strides[i])) for i in strides]
        assert run_offsets(lines, strides, position, sizes, strides) == want


def test_the_members_are_those_that_offsets_read():
    assert axis_fields(Form("rows"), [0, 1]) == []
    narrow = axis_fields(Form("rows", dims=2), [0, 2])
    assert [(f.name, f.kind, f.count) for f in narrow] == [
        ("size", "u32", 2), ("mul", "u32", 2), ("shift", "u32", 2),
        ("t0", "i32", 2), ("t2", "i32", 2),
    ]  # fmt: skip
    wide = axis_fields(Form("rows", dims=2, wide=True), [1])
    assert [(f.name, f.kind) for f in wide] == [("size", "u64"), ("t1", "i64")]
