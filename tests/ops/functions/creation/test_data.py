"""Tensors from numbers, sequences, arrays and buffers."""

from __future__ import annotations

import array

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import ConfigError


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (1, dt.int64), (1.5, dt.float32), (True, dt.bool), (1j, dt.complex64),
        ([1, 2.5], dt.float32),
        ([[True, False]], dt.bool), ([], dt.float32), (np.float64(2), dt.float64),
        (np.arange(3, dtype=np.int16), dt.int16), ([np.float32(1)], dt.float32),
        (range(3), dt.int64),
    ],
)  # fmt: skip
def test_types_follow_the_numbers(data, kind):
    assert dt.tensor(data).dtype is kind


def test_a_tensor_is_a_copy_and_as_tensor_is_none():
    a = np.zeros(3, np.float32)
    copied, shared = dt.tensor(a), dt.as_tensor(a)
    a[0] = 5
    assert copied[0] == 0 and shared[0] == 5 and dt.from_numpy(a)[0] == 5
    x = dt.ones(2)
    assert dt.as_tensor(x) is x and dt.as_tensor(x, dtype=dt.float64) is not x


def test_asarray_copies_as_told():
    a = np.ones(3, np.float32)
    assert dt.asarray(a).data_ptr() == a.ctypes.data
    assert dt.asarray(a, copy=True).data_ptr() != a.ctypes.data
    with pytest.raises(ValueError, match="copy=False"):
        dt.asarray([1.0], copy=False)
    buffer = array.array("f", [1, 2])
    assert dt.asarray(buffer, dtype=dt.float32).tolist() == [1.0, 2.0]


def test_buffers_with_offset_and_count():
    raw = bytearray(np.arange(6, dtype=np.int32).tobytes())
    found = dt.frombuffer(raw, dtype=dt.int32, offset=4, count=3)
    assert found.tolist() == [1, 2, 3]
    found[0] = 9
    assert np.frombuffer(raw, np.int32)[1] == 9


def test_uneven_sequences_are_refused():
    for data in ([[1, 2], [3]], ["a"], [None], object()):
        with pytest.raises((ValueError, TypeError, RuntimeError)):
            dt.tensor(data)


def test_a_capsule_can_be_taken_once():
    capsule = dt.to_dlpack(dt.ones(2))
    assert dt.from_dlpack(capsule).tolist() == [1, 1]
    for taken in (capsule, 3):
        with pytest.raises(ConfigError, match="each can be taken once"):
            dt.from_dlpack(taken)


def test_memory_is_shared_by_dlpack_both_ways():
    array, x = np.arange(3.0), dt.arange(3.0)
    dt.from_dlpack(array)[0] = 7
    assert array[0] == 7
    np.from_dlpack(x)[1] = 5
    dt.from_dlpack(dt.to_dlpack(x))[2] = 6
    assert x.tolist() == [0, 5, 6]
    dt.from_dlpack(x, copy=True).zero_()
    assert x.tolist() == [0, 5, 6]
    with pytest.raises(BufferError, match="require gradient"):
        x.requires_grad_().__dlpack__()


def test_arrays_of_files_share_their_memory(tmp_path):
    lies = np.memmap(tmp_path / "a", np.float32, "w+", shape=(3,))
    x = dt.from_numpy(lies)
    x.add_(1)
    assert lies.tolist() == [1, 1, 1] and (x * 2).tolist() == [2, 2, 2]
