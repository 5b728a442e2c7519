"""What stands for tensors in programs with conventions of their own."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import disttrain as dt
from disttrain.arrays.covers import Cover, Reference, lined, told, uncovered


class Value(Cover):
    __slots__ = ("_value",)

    def __getitem__(self, key):
        return Value.over(self._value[key])


def test_python_asks():
    x = Value.over(dt.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert len(x) == x.ndim == 2
    assert [row.numpy().tolist() for row in x] == [[1.0, 2.0], [3.0, 4.0]]
    assert np.asarray(x, np.int32).tolist() == [[1, 2], [3, 4]]
    one = Value.over(dt.tensor(3))
    assert (int(one), float(one), complex(one), bool(one), [0, 1, 2, 3][one]) == (3, 3, 3, True, 3)
    assert f"{one:03d}" == "003"
    with pytest.raises(TypeError, match=r"no `len\(\)`"):
        len(one)
    with pytest.raises(TypeError, match="iterate over a scalar"):
        iter(one)


def test_numbers_are_copies():
    x = Value.over(dt.tensor([1.0]))
    x.numpy()[0] = 5
    assert x.numpy().tolist() == [1.0]
    assert copy.copy(x) is x and copy.deepcopy(x).numpy().tolist() == [1.0]
    texts = Value.over(np.array([b"a"], object))
    assert copy.deepcopy(texts).numpy().tolist() == [b"a"]


def test_texts():
    assert told(np.float32(1.5)) == "1.5" and told(b"a") == "b'a'"
    assert told(np.zeros((2, 1))) == "\narray([[0.],\n       [0.]])"
    assert lined("one") == "one"


def test_functions_of_what_is_covered():
    x = Value.over(dt.tensor([1.0]))
    plain = lambda v: v._value if isinstance(v, Value) else v
    found = uncovered(dt.add, (x, 2), None, plain, Value.over)
    assert isinstance(found, Value) and found.numpy().tolist() == [3.0]


def test_references_are_keys():
    x, y = object(), object()
    assert Reference(x) == Reference(x) != Reference(y)
    assert {Reference(x): 1}[Reference(x)] == 1 and Reference(x).deref() is x
