"""Functions of trees as functions of lists."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.compat.jax.flat import BORDER, as_array
from disttrain.func.trees.flat import Flat, check_callable


def test_weak_types_go_through():
    flat = Flat(BORDER, lambda d: (d["a"] * 2, d["b"]), ({"a": 1.0, "b": np.ones(2, np.float32)},))
    outs = flat(*flat.tensors)
    result = flat.tree(outs)
    assert flat.weak == [True, False] and float(result[0]) == 2.0
    assert isinstance(outs[0], dt.Tensor)


def test_leaves_must_be_numbers():
    assert as_array(True).dtype == bool
    with pytest.raises(TypeError, match="not a valid JAX type"):
        as_array("a")
    with pytest.raises(TypeError, match="callable"):
        check_callable(1)
