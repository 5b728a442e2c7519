"""Shapes of which sizes, or the rank, are unknown."""

from __future__ import annotations

import pickle

import pytest

from disttrain.partial_shape import PartialShape, fits


def test_what_is_known():
    shape = PartialShape([None, 3])
    assert (shape.rank, len(shape), list(shape), shape[1]) == (2, 2, [None, 3], 3)
    assert not shape.is_fully_defined()
    assert shape.num_elements() is None
    assert PartialShape([2, 3]).num_elements() == 6
    assert PartialShape(4) == (4,)
    assert shape[1:] == [3]
    assert pickle.loads(pickle.dumps(shape)) == shape


def test_shapes_that_go_together():
    shape = PartialShape([None, 3])
    assert shape.is_compatible_with([2, 3])
    assert not shape.is_compatible_with([2, 4])
    assert shape.merge_with([2, None]) == [2, 3]
    assert PartialShape([2, 3]).widened([4, 3]) == [None, 3]
    assert PartialShape([2]).widened([2, 3]).rank is None
    assert shape + [5] == [None, 3, 5]
    assert [1] + shape == [1, None, 3]
    with pytest.raises(ValueError, match="incompatible"):
        shape.assert_is_compatible_with([1])
    with pytest.raises(ValueError, match="must have rank 1"):
        shape.with_rank(1)


def test_an_unknown_rank():
    shape = PartialShape(None)
    assert not shape
    assert (str(shape), repr(shape)) == ("<unknown>", "PartialShape(None)")
    assert shape.with_rank(2) == [None, None]
    with pytest.raises(ValueError, match="unknown rank"):
        len(shape)
    with pytest.raises(ValueError, match=">= 0"):
        PartialShape([-1])


def test_letters_stand_for_sizes():
    known = {}
    assert fits((2, 3), ("n", 3), known) and fits((3, 2, 7), (None, "n", 7), known)
    assert not fits((3,), ("n",), known) and not fits((2, 3), ("n",), known)
    assert fits((None, 4), ("n", "m"), known) and known == {"n": 2, "m": 4}
