"""Element types of ONNX and arrays of messages."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from disttrain.core.types import dtypes
from disttrain.errors import DTypeError, SerializationError
from disttrain.onnx.reading import elements

MOST = 1 << 20


@pytest.mark.parametrize("number", [*elements.OURS, *elements.NARROW])
def test_numbers_of_each_type_come_back(number):
    kind = helper.tensor_dtype_to_np_dtype(number)
    values = np.array([1, 1, 1]).astype(kind)
    for tensor in (
        numpy_helper.from_array(values, "t"),
        helper.make_tensor("t", number, [3], values),
    ):
        found = elements.array_of(tensor, MOST, "here")
        assert found.dtype == elements.held_in(number).np
        assert found.real.astype(np.float32).tolist() == [1, 1, 1]


def test_types_of_ours_and_of_onnx_are_pairs():
    assert len(elements.NUMBERS) == len(elements.OURS) == 20
    assert elements.held_in(TensorProto.BFLOAT16) == dtypes.bfloat16
    assert elements.held_in(TensorProto.INT4) == dtypes.int8
    with pytest.raises(DTypeError, match="STRING"):
        elements.held_in(TensorProto.STRING)
    assert elements.type_name(4711) == "number 4711"


def test_texts_are_objects():
    tensor = helper.make_tensor("t", TensorProto.STRING, [2], ["a", "ü"])
    assert elements.array_of(tensor, MOST, "here").tolist() == ["a", "ü"]


@pytest.mark.parametrize(("dims", "kind", "raw"), [
    ([3], TensorProto.FLOAT, b"\0" * 8), ([2**40], TensorProto.FLOAT, b"\0" * 8),
    ([-1], TensorProto.FLOAT, b"\0" * 4), ([2**62, 4], TensorProto.INT8, b""),
    ([1], TensorProto.UNDEFINED, b"\0" * 4), ([1], 99, b"\0" * 4), ([3], TensorProto.INT4, b"\0"),
])  # fmt: skip
def test_sizes_that_do_not_fit_their_bytes_are_refused(dims, kind, raw):
    tensor = TensorProto(dims=dims, data_type=kind, raw_data=raw)
    with pytest.raises(SerializationError, match=r"^here: "):
        elements.array_of(tensor, MOST, "here")


def test_lists_of_another_length_and_tensors_over_the_limit_are_refused():
    tensor = TensorProto(dims=[3], data_type=TensorProto.FLOAT, float_data=[1.0])
    with pytest.raises(SerializationError, match="need 3 elements; the file has 1"):
        elements.array_of(tensor, MOST, "here")
    with pytest.raises(SerializationError, match="at most 8 bytes"):
        elements.array_of(numpy_helper.from_array(np.zeros(3, np.float32)), 8, "here")


def test_arrays_of_few_bits_are_widened():
    assert elements.held(np.array([-8, 7]).astype(ml_dtypes.int4)).tolist() == [-8, 7]
    given = np.ones(2, np.float32)
    assert elements.held(given) is given
