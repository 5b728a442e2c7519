"""Tensors from numbers, sequences, arrays and buffers."""

from __future__ import annotations

import array
import math

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import ConfigError
from disttrain.ops.functions.creation.data import to_dlpack


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


def test_capsules_of_bfloat16_go_both_ways():
    x = dt.arange(4, dtype=dt.bfloat16)
    seen = dt.asarray(to_dlpack(x))
    assert seen.dtype is dt.bfloat16 and seen.data_ptr() == x.data_ptr()
    assert dt.from_dlpack(to_dlpack(x.float())).dtype is dt.float32


def test_complex_numbers_for_a_real_type():
    a = np.array([1 + 2j, 0j, 3j])
    for give in (dt.tensor, dt.as_tensor, dt.asarray):
        with pytest.warns(UserWarning, match="discards the imaginary part"):
            out = give(a, dtype=dt.float32)
        assert out.tolist() == [1.0, 0.0, 0.0]
        assert give(a, dtype=dt.bool).tolist() == [True, False, True]
    assert dt.tensor([1j, 0j]).to(dt.bool).tolist() == [True, False]
    with pytest.raises(TypeError, match="real numbers"):
        dt.tensor([1j], dtype=dt.float32)


def test_integers_beyond_64_bits_need_a_type_that_holds_them():
    large = 2**64 + 1
    assert dt.tensor([large, 1], dtype=dt.float64).tolist() == [2.0**64, 1.0]
    assert dt.tensor((0, -(2**63) - 1, math.nan), dtype=dt.bool).tolist() == [False, True, True]
    for data in (large, [1, large], [large, 1.5]):
        with pytest.raises(ValueError, match="Overflow when unpacking"):
            dt.tensor(data)


def test_tensors_of_one_element_are_numbers_in_sequences():
    x = dt.tensor([[dt.tensor([1]), 2, dt.tensor([[3]])]])
    assert x.shape == (1, 3) and x.tolist() == [[1, 2, 3]]


def test_buffers_are_looked_at_before_they_are_used():
    memory = bytearray(range(16))
    assert dt.frombuffer(memory, dtype=dt.int32, count=2, offset=4).shape == (2,)
    wrong = [
        ({"count": 0}, "must not be 0"), ({"offset": -1}, "must be non-negative"),
        ({"offset": 16}, "no greater than buffer length"), ({"offset": 3}, "multiple of element"),
        ({"count": 5}, "not be greater than actual buffer length"),
    ]  # fmt: skip
    for how, said in wrong:
        with pytest.raises(ValueError, match=said):
            dt.frombuffer(memory, dtype=dt.int32, **how)
    with pytest.raises(ValueError, match="buffer protocol"):
        dt.frombuffer([1, 2], dtype=dt.int32)
    with pytest.warns(UserWarning, match="not writable"):
        dt.frombuffer(bytes(memory), dtype=dt.int32)


def test_why_there_is_no_alias():
    x = dt.ones(2)
    given = [(np.float64(0.5), {}, "NumPy scalars"), ([1.0], {}, "arbitrary sequence"),
             (x, {"dtype": dt.float64}, "dtype 'Float' into dtype 'Double'")]  # fmt: skip
    for obj, how, said in given:
        with pytest.raises(ValueError, match=said):
            dt.asarray(obj, copy=False, **how)


def test_numpys_functions_give_tensors():
    x = dt.tensor([-1.0, 4.0])
    assert isinstance(np.abs(x), dt.Tensor) and np.sqrt(dt.abs(x)).tolist() == [1.0, 2.0]
    assert np.greater(x, 0).dtype is dt.uint8
