"""Jacobians as trees."""

from __future__ import annotations

import numpy as np

import disttrain.compat.jax as jax

jnp = jax.numpy


def test_both_ways_agree():
    f = lambda p: {"y": jnp.sin(p["x"]) * p["k"], "z": p["k"] ** 2}
    p = {"x": jnp.arange(3.0), "k": jnp.ones((3,))}
    ahead, back = jax.jacfwd(f)(p), jax.jacrev(f)(p)
    assert jax.tree.structure(ahead) == jax.tree.structure(back)
    for a, b in zip(jax.tree.leaves(ahead), jax.tree.leaves(back), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    assert ahead["y"]["x"].shape == (3, 3)


def test_hessian():
    h = jax.hessian(lambda x: (x**3).sum())(jnp.arange(3.0))
    np.testing.assert_allclose(h, np.diag([0.0, 6.0, 12.0]))
    value, aux = jax.jacfwd(lambda x: (x * 2, x), has_aux=True)(1.0)
    assert (float(value), float(aux)) == (2.0, 1.0)
