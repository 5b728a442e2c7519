"""The lattice of element types: how kinds meet, and questions about types."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.core.types import lattice
from disttrain.core.types.lattice import met, named


def kind(text):
    return named(text.strip("~")), text.startswith("~")


@pytest.mark.parametrize(
    "one, other, want",
    [
        ("int8", "uint8", "int16"), ("uint32", "int8", "int64"), ("uint8", "~int64", "uint8"),
        ("int32", "~float64", "~float64"), ("float16", "int32", "float16"),
        ("float32", "~complex128", "complex64"), ("bfloat16", "float16", "float32"),
        ("bool", "~int64", "~int64"), ("~int64", "~float64", "~float64"),
    ],
)  # fmt: skip
def test_two_kinds_meet(one, other, want):
    pair = kind(one), kind(other)
    assert met(pair) == met(pair[::-1]) == kind(want)


def test_narrow_and_strict():
    assert met((kind("uint32"), kind("int8")), wide=False) == kind("int32")
    assert lattice.of_number(1.0, False) == kind("~float32")
    with pytest.raises(lattice.NoCommonType):
        met((kind("int8"), kind("float32")), strict=True)
    assert met((kind("~float64"), kind("bfloat16")), strict=True) == kind("bfloat16")


def test_what_functions_make_of_a_type():
    assert lattice.inexact(named("int32")) == np.float32
    assert lattice.inexact(named("int64")) == np.float64
    assert lattice.summed(named("uint8")) == np.uint64
    assert lattice.summed(named("bool"), wide=False) == np.int32
    assert lattice.complexed(named("float64")) == np.complex128


def test_questions():
    assert lattice.is_of_kind(named("bfloat16"), "real floating")
    assert lattice.is_of_kind(named("int8"), ("bool", np.int8))
    assert lattice.is_subtype(named("float8_e5m2"), np.floating)
    assert not lattice.is_subtype(named("bfloat16"), np.float32)
    with pytest.raises(ValueError, match="Unrecognized"):
        lattice.is_of_kind(named("int8"), "whole")
