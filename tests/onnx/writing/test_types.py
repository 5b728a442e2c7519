"""Element types and sizes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest

from disttrain.errors import ConfigError
from disttrain.export import Size
from disttrain.onnx.writing.types import (
    Unmapped,
    check_opset,
    computed,
    element_type,
    same_shape,
    static,
    tensor,
)


def test_element_types():
    assert element_type(np.float32) == onnx.TensorProto.FLOAT
    assert element_type(ml_dtypes.bfloat16) == onnx.TensorProto.BFLOAT16
    with pytest.raises(Unmapped, match="complex64"):
        element_type(np.complex64)


def test_sizes():
    n = Size("n")
    assert static((1, np.int64(2))) and not static((1, n)) and not static(None)
    assert same_shape((2, n), (2, Size("n"))) and not same_shape((2, n), (2, 3))
    assert computed("+", 2, 3) == 5 and computed("//", 7, 2) == 3
    assert computed("-", n, 1).evaluate({"n": 4}) == 3


def test_tensors_keep_their_numbers():
    for array in (np.arange(6.0).reshape(2, 3).T, np.array(2.5, np.float16), np.zeros((0, 2))):
        back = onnx.numpy_helper.to_array(tensor(array))
        assert back.shape == array.shape and np.array_equal(back, array)


@pytest.mark.parametrize("opset", [16, 99, True, 18.0, None])
def test_versions(opset):
    with pytest.raises(ConfigError):
        check_opset(opset, 17, 27)
