"""Jacobians of functions of trees of tensors."""

from __future__ import annotations

import disttrain as dt
from disttrain.func.trees.jacobians import Transforms
from tests.support.borders import BORDER

T = Transforms(BORDER)


def test_both_ways_agree():
    x = {"a": dt.tensor([1.0, 2.0]), "b": dt.tensor(3.0)}
    f = lambda t: (t["a"] * t["b"], t["b"] ** 2)
    for jacobian in (T.jacfwd, T.jacrev):
        rows, last = jacobian(f)(x)
        assert rows["a"].tolist() == [[3, 0], [0, 3]] and rows["b"].tolist() == [1, 2]
        assert last["a"].tolist() == [0, 0] and float(last["b"]) == 6
    assert T.hessian(lambda v: (v**3).sum())(x["a"]).tolist() == [[6, 0], [0, 12]]


def test_aux_goes_beside():
    for jacobian in (T.jacfwd, T.jacrev):
        found, aux = jacobian(lambda v: (v * v, v.sum()), has_aux=True)(dt.tensor([1.0, 2.0]))
        assert found.tolist() == [[2, 0], [0, 4]] and float(aux) == 3
