"""Arrays made of numbers and shapes, for a program whose arrays are tensors."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.arrays.lifting import Lifting
from disttrain.arrays.program.making import Making

MAKING = Making(Lifting())
NAMES = MAKING.names()


def test_of_numbers():
    assert MAKING.array([1, 2], "int16").dtype is dt.int16
    assert MAKING.array(3.0, ndmin=2).shape == (1, 1)
    x = dt.tensor([1.0, 2.0])
    assert MAKING.asarray(x) is x and MAKING.copy(x) is not x
    assert MAKING.asarray(x, "float64").dtype is dt.float64
    with pytest.raises(TypeError, match="array"):
        MAKING.array(None)


def test_of_shapes():
    assert NAMES["zeros"]((2, 3), "int8").shape == (2, 3)
    assert NAMES["ones_like"](dt.tensor([1, 2]), shape=3).tolist() == [1, 1, 1]
    assert MAKING.full(2, np.int32([7])).tolist() == [7, 7]
    assert MAKING.arange(1, 7, 2).tolist() == [1, 3, 5]
    assert MAKING.arange(3, step=2).tolist() == [0, 2]
    assert NAMES["eye"](2, dtype="int32").tolist() == [[1, 0], [0, 1]]
    rows, columns = NAMES["tril_indices_from"](dt.ones((2, 2)))
    assert (rows.tolist(), columns.tolist()) == ([0, 1, 1], [0, 0, 1])
    with pytest.raises(TypeError, match="Only non-negative sizes"):
        NAMES["ones"]((-1,))


def test_of_others():
    assert MAKING.frombuffer(np.float64([1, 2]).tobytes()).tolist() == [1.0, 2.0]
    assert MAKING.from_dlpack(np.float32([1])).tolist() == [1.0]
    assert MAKING.astype(dt.tensor([1.5]), int).tolist() == [1]
    assert MAKING.fromfunction(lambda i, j: i + j, (2, 2)).tolist() == [[0.0, 1.0], [1.0, 2.0]]
    pair = MAKING.broadcast_arrays(np.int32([1]), np.int32([2, 3]))
    assert [t.tolist() for t in pair] == [[1, 1], [2, 3]]
    assert MAKING.broadcast_arrays() == []
    with pytest.raises(ValueError, match="Incompatible shapes"):
        MAKING.broadcast_arrays(np.ones(2), np.ones(3))
