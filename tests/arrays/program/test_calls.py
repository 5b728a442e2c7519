"""Functions that take functions or several conventions, for a program whose arrays are tensors."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.arrays import selection, shapes
from disttrain.arrays.lifting import Lifting
from disttrain.arrays.program.calls import Calls
from disttrain.arrays.program.making import Making

LIFT = Lifting()
ROWS = LIFT.table(". -> same: expand_dims! nonzero", (shapes, selection))
CALLS = Calls(Making(LIFT), ROWS)
NAMES = CALLS.names()


def test_choices():
    x = dt.tensor([1.0, -2.0, 3.0])
    assert CALLS.where(x > 0, x, 0).tolist() == [1.0, 0.0, 3.0]
    assert CALLS.where(x > 0)[0].tolist() == [0, 2]
    assert CALLS.piecewise(x, [x < 0], [lambda v: -v, 5]).tolist() == [5.0, 2.0, 5.0]
    with pytest.raises(TypeError, match="where"):
        CALLS.where(x > 0, x, None)
    with pytest.raises(ValueError, match="Incompatible shapes"):
        CALLS.where(x > 0, np.int32([1, 2]), 0)
    with pytest.raises(ValueError, match="functions are expected"):
        CALLS.piecewise(x, [x < 0], [])


def test_functions_of_parts():
    x = dt.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert CALLS.apply_along_axis(lambda line: line.sum(), 0, x).tolist() == [4.0, 6.0]
    assert CALLS.apply_over_axes(lambda a, d: a.sum(d), x, [0, 1]).tolist() == [[10.0]]
    assert CALLS.vectorize(lambda a, b: a + b)(x, 1.0).tolist() == [[2.0, 3.0], [4.0, 5.0]]
    with pytest.raises(TypeError, match=r"disttrain\.arrays\.vectorize"):
        CALLS.vectorize(abs, excluded={1.5})


def test_conventions():
    x = dt.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert CALLS.einsum("ij->j", x).tolist() == CALLS.einsum(x, [0, 1], [1]).tolist()
    assert CALLS.gradient(np.float32([1, 2, 4])).tolist() == [1.0, 1.5, 2.0]
    assert CALLS.pad(np.int32([1]), 1, constant_values=7).tolist() == [7, 1, 7]
    assert NAMES["atleast_2d"](3).shape == (1, 1)
    assert (CALLS.shape(x), CALLS.size(x), CALLS.size(x, 0), NAMES["ndim"](x)) == ((2, 2), 4, 2, 2)
    assert CALLS.result_type("int8", np.uint8(1)) == np.int16
    assert NAMES["iscomplexobj"](1j) and NAMES["isrealobj"](1) and NAMES["isscalar"](1)
    with pytest.raises(ValueError, match="Incompatible shapes"):
        CALLS.broadcast_shapes((2,), (3,))
    with pytest.raises(ValueError, match="einsum"):
        CALLS.einsum("ij->k", x)
