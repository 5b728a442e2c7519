"""Rows of functions that draw: shapes and types of numbers and arrays."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain import keyed
from disttrain.arrays.lifting import Lifting
from disttrain.keyed.rows import Samplers

KEY = keyed.seed(0)
NAMES = Samplers(Lifting(), lambda name, key: key).table()


def test_shapes_and_types_of_parameters():
    drawn = NAMES["beta"](KEY, 2.0, np.float32([1, 2, 3]), dtype=np.float32)
    assert tuple(drawn.shape) == (3,) and drawn.meta()[1] == np.float32
    assert (
        drawn.tolist()
        == keyed.beta(
            KEY, drawn.new_full((), 2.0), drawn.new_tensor([1, 2, 3]), (3,), np.dtype(np.float32)
        ).tolist()
    )
    assert NAMES["normal"](KEY, (2,)).meta()[1] == np.float64
    assert NAMES["randint"](KEY, (4,), 0, 9, "int32").meta()[1] == np.int32
    assert tuple(NAMES["dirichlet"](KEY, [1.0, 2.0]).shape) == (2,)


def test_wrong_arguments():
    for error, call in (
        (ValueError, lambda: NAMES["normal"](KEY, (2,), "int32")),
        (TypeError, lambda: NAMES["randint"](KEY, (2,), 0, 9, "float32")),
        (TypeError, lambda: NAMES["bernoulli"](KEY, 1)),
        (ValueError, lambda: NAMES["beta"](KEY, np.ones(2), np.ones(3))),
        (TypeError, lambda: NAMES["rayleigh"](KEY, np.ones(2), dtype="float16")),
    ):
        with pytest.raises(error):
            call()
