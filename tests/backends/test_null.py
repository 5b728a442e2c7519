"""Arrays without data: shapes and types go through, values are refused."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.backends.null import NullArray
from disttrain.errors import DeviceError


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4), (2, 1, 4)])
def test_strides_are_those_of_numpy(shape):
    assert NullArray(shape, np.float32).strides == np.empty(shape, np.float32).strides


def test_a_copy_is_of_the_same_kind_and_another_array():
    array = NullArray((2, 3), "float16")
    for make in (array.copy, array.ones, array.zeros):
        assert (make().shape, make().dtype) == ((2, 3), np.float16)
        assert make() is not array


@pytest.mark.parametrize(
    "ask",
    [bool, float, int, iter, np.asarray, lambda a: a[0], lambda a: a.item(), lambda a: a.tolist(),
     lambda a: a.tobytes()],
)  # fmt: skip
def test_whoever_asks_for_a_value_is_told_what_to_do(ask):
    with pytest.raises(DeviceError, match=r"shape \(1,\) on the meta device .* to_empty"):
        ask(NullArray((1,), np.float32))


def test_no_value_is_written():
    with pytest.raises(DeviceError, match="meta device"):
        NullArray((1,), np.float32)[0] = 1
