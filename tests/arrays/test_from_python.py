"""Arrays of what a program writes."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.arrays.from_python import array_of, fits_32, made, type_for


def test_whose_type_it_is():
    assert array_of([1, 2])[1]
    assert not array_of([np.float16(1), 2])[1]
    assert array_of([np.float16(1), 2])[0].dtype == np.float16
    assert not array_of(np.ones(2))[1]
    assert fits_32(np.array([1, -(2**31)]))
    assert not fits_32(np.array([2**31]))


def test_texts():
    assert array_of(["a", b"b\0"])[0].tolist() == [b"a", b"b\0"]
    assert array_of("é")[0].item() == "é".encode()


@pytest.mark.parametrize(("value", "message"), [
    ([[1], [1, 2]], "non-rectangular"), ([1, "a"], "mixed types"),
    (None, r"a value \(None\) with an unsupported type"), (object(), "unsupported type"),
])  # fmt: skip
def test_what_is_no_array(value, message):
    with pytest.raises(ValueError, match=message):
        array_of(value)


@pytest.mark.parametrize(("value", "kind", "wanted"), [
    (1, None, "int32"), (2**40, None, "int64"), (1.5, None, "float32"), (True, None, "bool"),
    (1j, None, "complex128"), (1, "bfloat16", "bfloat16"), (1, "bool", None), (True, "int32",
    "int32"), (True, "uint8", None), (1.5, "int32", None), (1.5, "complex64", "complex64"),
    (1j, "float32", None), ([], "int32", "int32"), (np.float64(1.5), None, "float64"),
    (np.float64(1.5), "int8", "int8"), (1, "string", "string"), (1.5, "string", None),
])  # fmt: skip
def test_types_for_numbers(value, kind, wanted):
    array, natural = array_of(value)
    assert type_for(array, natural, kind, True) == wanted
    if wanted is None:
        assert type_for(array, natural, kind, False) == type_for(array, natural, None, True)


def test_tensors():
    assert str(made([1, 2], "bfloat16").dtype) == "disttrain.bfloat16"
    assert made([1.5]).tolist() == [1.5] and made("a").item() == b"a"
    assert made(1.5, "int32", True) is made("a", "int32") is made(1, "string") is None
