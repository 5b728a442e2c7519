"""Tensors over storages: proved to lie in them, sharing what they share."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.core.types import dtypes
from disttrain.errors import SerializationError
from disttrain.serialize.pytorch.storages import Storage, Tensors


def storage(values=range(6), kind=dtypes.float32, shift=0):
    raw = np.array(list(values), kind.np).view(np.uint8)
    room = np.zeros(raw.size + shift, np.uint8)
    room[shift:] = raw
    return Storage("0", room[shift:], kind, "cpu")


def tensors():
    return Tensors(lambda tensor, location: dt.device(location), dt.nn.Parameter)


def test_parts_of_a_storage_share_it():
    make, one = tensors(), storage()
    whole, turned = make.tensor(one, 0, (2, 3), (3, 1)), make.tensor(one, 1, (3,), (2,), True)
    assert whole.tolist() == [[0, 1, 2], [3, 4, 5]] and turned.tolist() == [1, 3, 5]
    assert turned.requires_grad and not whole.requires_grad and one.used
    whole[0, 1] = 9
    assert turned[0].item() == 9 and turned._version == whole._version == 1
    assert make.tensor(one, 0, (4,), (0,)).tolist() == [0] * 4
    assert make.tensor(one, 99, (0, 3), (3, 1)).shape == (0, 3)
    bits = make.of_type(one, 1, (2,), (1,), False, None, dtypes.int32)
    assert bits.tolist() == np.array([9, 2], np.float32).view(np.int32).tolist()
    assert make.bytes_of(one).nbytes() == 24


def test_storages_that_lie_between_elements_are_copied():
    assert tensors().tensor(storage(shift=3), 2, (2,), (1,)).tolist() == [2, 3]


def test_what_is_put_off_in_pytorch_is_done():
    one = storage([1 + 2j, 3 - 1j], dtypes.complex64)
    found = tensors().tensor(one, 0, (2,), (1,), False, None, {"conj": True, "neg": False})
    assert found.tolist() == [1 - 2j, 3 + 1j]


def test_parameters_and_tensors_without_data():
    make = tensors()
    weight = make.parameter(make.tensor(storage(), 0, (2,), (1,)), False, {})
    assert isinstance(weight, dt.nn.Parameter) and not weight.requires_grad
    assert make.meta(dtypes.float16, (2, 3), (3, 1), False).device.type == "meta"
    with pytest.raises(SerializationError, match="parameter with attributes"):
        make.parameter(weight, True, {}, {"a": 1})
    with pytest.raises(TypeError, match="no storage"):
        make.of_type(None, 0, (1,), (1,), False, None, dtypes.int8)


@pytest.mark.parametrize(
    ("offset", "size", "stride"),
    [
        (0, (7,), (1,)), (6, (1,), (1,)), (0, (2, 3), (4, 1)), (0, (2,), (1 << 61,)),
        (-1, (1,), (1,)), (0, (-1,), (1,)),
        (0, (2,), (-1,)), (0, (2,), (1, 1)), (0, (1 << 40, 1 << 40), (0, 0)),
        (0, (1.0,), (1,)), (True, (1,), (1,)), (0, (1,) * 65, (1,) * 65), (0, (1 << 63, 0), (1, 1)),
    ],
)  # fmt: skip
def test_claims_beyond_a_storage(offset, size, stride):
    with pytest.raises(SerializationError):
        tensors().tensor(storage(), offset, size, stride)


def test_truth_values_are_0_and_1():
    with pytest.raises(SerializationError, match="truth values"):
        tensors().of_type(storage([2], dtypes.uint8), 0, (1,), (1,), False, None, dtypes.bool)


def test_what_was_put_off_is_done_once_for_a_storage():
    make, one = tensors(), storage()
    minus = {"neg": True, "conj": False}
    wide = make.tensor(one, 1, (1 << 40, 2), (0, 1), False, None, minus)
    assert wide[0].tolist() == [-1, -2] and wide.shape == (1 << 40, 2)
    assert make.tensor(one, 0, (2,), (1,)).tolist() == [0, 1]
    both = storage([1 + 2j], dtypes.complex64)
    found = make.tensor(both, 0, (1,), (1,), False, None, {"conj": True, "neg": True})
    assert found.tolist() == [-1 + 2j]
    for metadata in ({"turned": True}, [1]):
        with pytest.raises(TypeError):
            make.tensor(one, 0, (1,), (1,), False, None, metadata)


def test_tensors_of_up_to_64_dimensions():
    assert tensors().tensor(storage(), 0, (1,) * 64, (1,) * 64).ndim == 64
    for make in (
        lambda: tensors().tensor(storage(), 0, (1,) * 65, (1,) * 65),
        lambda: tensors().meta(dtypes.float32, (1,) * 65, (1,) * 65, False),
    ):
        with pytest.raises(SerializationError):
            make()
