"""Jacobians and Hessians: of functions whose derivatives are known, both ways alike."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.func import hessian, jacfwd, jacrev

X = dt.tensor([1.0, 2.0, 3.0])


@pytest.mark.parametrize("jacobian", [jacrev, jacfwd])
def test_rows_are_results_and_columns_arguments(jacobian):
    found = jacobian(lambda x: dt.stack([x.sum(), (x * x).sum()]))(X)
    assert found.tolist() == [[1, 1, 1], [2, 4, 6]]


@pytest.mark.parametrize("jacobian", [jacrev, jacfwd])
def test_shapes_stand_behind_each_other(jacobian):
    found = jacobian(lambda x: x.reshape(1, 3) * 2)(X)
    assert found.shape == (1, 3, 3)
    assert (found[0] == 2 * dt.eye(3)).all()


@pytest.mark.parametrize("jacobian", [jacrev, jacfwd])
def test_arguments_by_number(jacobian):
    def fn(x, y):
        return (x * y).sum()

    y = dt.tensor([4.0, 5.0, 6.0])
    assert jacobian(fn, argnums=1)(X, y).tolist() == X.tolist()
    by_x, by_y = jacobian(fn, argnums=(0, 1))(X, y)
    assert (by_x.tolist(), by_y.tolist()) == (y.tolist(), X.tolist())


@pytest.mark.parametrize("jacobian", [jacrev, jacfwd])
def test_what_goes_beside(jacobian):
    found, more = jacobian(lambda x: (x * 2, x.sum()), has_aux=True)(X)
    assert (found == 2 * dt.eye(3)).all() and more.item() == 6


def test_a_hessian():
    assert hessian(lambda x: x[0] * x[1] + x[2] ** 3)(X).tolist() == [
        [0, 1, 0],
        [1, 0, 0],
        [0, 0, 18],
    ]
