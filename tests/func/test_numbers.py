"""Python numbers as leaves."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import func
from disttrain.errors import AutogradError


def test_numbers_are_leaves():
    assert float(func.grad(lambda x: x**2)(3.0)) == 6.0
    grads = func.grad(lambda d: d["a"] * d["b"])({"a": 2.0, "b": dt.tensor(3.0)})
    assert (float(grads["a"]), float(grads["b"])) == (3.0, 2.0)
    assert float(func.vjp(lambda x: x * 2, 1.0)[1](1)[0]) == 2.0
    assert float(func.jvp(lambda x: x * 2, (1.0,), (3,))[1]) == 6.0
    assert float(func.linearize(lambda x: x**3, 1.0)[1](1)) == 3.0
    assert float(func.hessian(lambda x: x**3)(1.0)) == 6.0
    assert float(func.jacfwd(lambda x: x * 2)(1.0)) == 2.0


def test_axes_are_dims():
    f = lambda d: d["a"] * d["b"]
    given = {"a": dt.ones(3), "b": 2.0}
    assert func.vmap(f, in_axes=({"a": 0, "b": None},))(given).tolist() == [2.0] * 3
    assert func.vmap(lambda x: x, out_axes=1)(dt.ones(2, 3)).shape == (3, 2)
    with pytest.raises(RuntimeError, match="mean the same"):
        func.vmap(f, in_dims=1, in_axes=0)


def test_jit_is_compile_for_functions():
    @dt.jit
    def f(x):
        return x + 1

    assert f(dt.ones(2)).tolist() == [2.0, 2.0] and dt.jit is dt.compile.jit


@pytest.mark.parametrize("pair", [(1.0, dt.ones(2)), (dt.ones(2), 1.0)], ids=["primal", "tangent"])
def test_a_number_is_no_partner_of_a_row(pair):
    primal, tangent = pair
    with pytest.raises(AutogradError, match="only contain Tensors"):
        func.jvp(dt.sin, (primal,), (tangent,))
