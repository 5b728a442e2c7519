"""``vmap`` of functions of trees of tensors."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.func.trees.batches import Batches
from tests.support.borders import BORDER

vmap = Batches(BORDER).vmap


def test_axes_are_trees():
    x = {"a": dt.arange(6.0).reshape(2, 3), "b": dt.ones(2)}
    out = vmap(lambda t: t["a"] + t["b"], in_axes=({"a": 1, "b": None},), out_axes=1)(x)
    assert out.tolist() == [[1, 2, 3], [4, 5, 6]]
    both = vmap(lambda t: t, in_axes=([0, None],), out_axes=[0, None])([dt.ones(2), dt.tensor(5)])
    assert both[0].shape == (2,) and both[1].shape == ()


def test_what_does_not_fit_is_told():
    with pytest.raises(ValueError, match="one axis had size 2: axis 0 of argument x of type"):
        vmap(lambda x, y: x)(dt.ones(2), dt.ones(3))
    with pytest.raises(ValueError, match="vmap in_axes specification must be a tree prefix"):
        vmap(lambda x: x, in_axes=((0, 0),))(dt.ones(2))
    with pytest.raises(ValueError, match="got axis spec None but output was batched on axis 0"):
        vmap(lambda x: x, out_axes=None)(dt.ones(2))
