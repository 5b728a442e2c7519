"""Transposes of functions of trees of tensors, and gradients told beside results."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.func.trees.custom import CustomVjp
from disttrain.func.trees.programs import Programs
from disttrain.func.trees.transposes import Transposes
from tests.support.borders import BORDER


class Native(Programs):
    border = BORDER


class Rule(CustomVjp):
    border = BORDER


T = Transposes(Native, Rule)


def test_linear_functions_are_transposed():
    (found,) = T.linear_transpose(lambda x: 3.0 * x, dt.ones(2))(dt.tensor([1.0, 2.0]))
    assert found.tolist() == [3, 6]
    with pytest.raises(NotImplementedError, match="Transpose rule"):
        T.linear_transpose(lambda x: x * x, dt.ones(2))
    with pytest.raises(TypeError, match="cotangent type does not match"):
        T.linear_transpose(lambda x: 3.0 * x, dt.ones(2))(dt.ones(3))


def test_gradients_beside_results():
    twice = T.custom_gradient(lambda x: (x * x, lambda g: 9 * g))
    assert float(T.grad(twice)(dt.tensor(3.0))) == 9
    fwd, bwd = T.fwd_and_bwd(lambda x, y: x * y, 0)
    assert float(bwd(fwd(2.0, 5.0)[1], dt.tensor(1.0))) == 5


def test_closures_become_arguments():
    def outer(w):
        run, more = T.closure_convert(lambda x: x * w, dt.tensor(2.0))
        assert len(more) == 1
        return run(dt.tensor(2.0), *more)

    assert float(T.grad(outer)(dt.tensor(5.0))) == 2
