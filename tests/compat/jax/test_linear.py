"""Transposes of linear functions; closures as arguments; gradients by hand."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain.compat.jax as jax

jnp = jax.numpy


def test_transposes():
    (got,) = jax.linear_transpose(lambda x: 3 * x.sum() + x[0], jnp.ones(3))(2.0)
    assert got.tolist() == [8.0, 6.0, 6.0]
    shape = jax.ShapeDtypeStruct((2,), np.float32)
    pair = jax.linear_transpose(lambda x, y: (x + y, 2 * y), shape, shape)((jnp.ones(2),) * 2)
    assert [p.tolist() for p in pair] == [[1.0, 1.0], [3.0, 3.0]]
    for odd in (jnp.sin, lambda x: x * x):
        with pytest.raises(NotImplementedError, match="Transpose rule"):
            jax.linear_transpose(odd, 1.0)
    with pytest.raises(TypeError, match="does not match function output"):
        jax.linear_transpose(lambda x: x, jnp.ones(2))(1.0)


def test_closures_become_arguments():
    def f(w):
        converted, consts = jax.closure_convert(lambda x: x * w, 1.0)
        assert len(consts) == 1
        return converted(2.0, *consts)

    assert float(jax.grad(f)(3.0)) == 2.0
    assert jax.closure_convert(lambda x: x * 2, 1.0)[1] == []


def test_gradients_by_hand():
    square = jax.custom_gradient(lambda x: (x**2, lambda g: g * 100 * x))
    assert float(square(3.0)) == 9.0 and float(jax.grad(square)(2.0)) == 200.0
    assert jax.vmap(jax.grad(square))(jnp.ones(2)).tolist() == [100.0, 100.0]
    forward, backward = jax.fwd_and_bwd(lambda x, y: x * y, 0)
    out, residuals = forward(2.0, 3.0)
    assert (float(out), float(backward(residuals, 1.0))) == (6.0, 3.0)
