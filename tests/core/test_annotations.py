"""The types that many signatures share: what stands for an array has what rules use of it."""

import types

import numpy as np
import pytest

from disttrain import Tensor
from disttrain.backends.device.array import DeviceArray
from disttrain.backends.device.raw import RawArray
from disttrain.backends.null import NullArray
from disttrain.core.annotations import Shaped, Value


def members(protocol):
    own = [kind for kind in protocol.__mro__ if kind.__module__ == protocol.__module__]
    found = {
        name
        for kind in own
        for name, value in vars(kind).items()
        if isinstance(value, (property, types.FunctionType))
    }
    return found - {"__init__", "__subclasshook__"}


def test_members_are_found():
    assert members(Shaped) == {"shape", "dtype"}
    assert members(Value) > {"shape", "dtype", "__add__", "__matmul__", "__getitem__", "__lt__"}


@pytest.mark.parametrize("kind", [np.ndarray, Tensor, RawArray])
def test_arrays_and_tensors_are_values(kind):
    made = {name for base in kind.__mro__[:-1] for name in vars(base)}
    assert members(Value) - made == set()


@pytest.mark.parametrize("kind", [DeviceArray, NullArray])
def test_what_stands_for_an_array_has_its_shape(kind):
    assert all(hasattr(kind, name) for name in members(Shaped))
