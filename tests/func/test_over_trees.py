"""Functions of tensors over the leaves of trees."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.func.over_trees import of_leaves, reducing
from disttrain.func.structured_bodies import Border
from disttrain.tree import Registry

BORDER = Border(Registry(), lambda x: (x, False), lambda t, weak: t, None)


def test_each_leaf():
    double = of_leaves(BORDER, lambda t, by: t * by)
    out = double({"a": dt.ones(2), "b": [dt.zeros(1)]}, 2)
    assert out["a"].tolist() == [2.0, 2.0] and out["b"][0].tolist() == [0.0]


def test_reductions_of_trees():
    def fn(operands, starts, combine):
        for x, s in zip(operands, starts, strict=True):
            assert x.ndim == 1 and s.ndim == 0
        return combine(starts, [x.sum() for x in operands])

    add = lambda p, q: {"a": p["a"] + q["a"]}
    out = reducing(BORDER, fn)({"a": dt.ones(3)}, {"a": dt.tensor(1.0)}, add)
    assert out["a"].item() == 4
    with pytest.raises(ValueError, match="same tree structure"):
        reducing(BORDER, fn)({"a": dt.ones(3)}, [dt.tensor(1.0)], add)
