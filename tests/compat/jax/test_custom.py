"""custom_vjp, custom_jvp, checkpoint."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import disttrain.compat.jax as jax

jnp = jax.numpy


def clipped():
    @jax.custom_vjp
    def f(x, y):
        return jnp.sin(x) * y

    f.defvjp(
        lambda x, y: (f(x, y), (jnp.cos(x), y)),
        lambda res, g: (10 * res[0] * res[1] * g, None),
    )
    return f


def test_reverse_mode_takes_the_rule_in_every_composition():
    f, x, cos = clipped(), jnp.asarray(1.0), np.cos(1.0)
    for way in (
        jax.grad(f), jax.jit(jax.grad(f)), jax.grad(jax.jit(f)), jax.grad(jax.checkpoint(f)),
        lambda x, y: jax.vmap(jax.grad(f), (0, None))(x[None], y)[0],
        lambda x, y: jax.grad(lambda x: jax.vmap(f, (0, None))(x, y).sum())(x[None])[0],
        lambda x, y: jax.jacrev(f)(x, y),
    ):  # fmt: skip
        np.testing.assert_allclose(way(x, 2.0), 20 * cos, rtol=1e-6)
    np.testing.assert_allclose(jax.grad(jax.grad(f))(x, 2.0), -20 * np.sin(1.0), rtol=1e-6)
    with pytest.raises(TypeError, match="can't apply forward-mode"):
        jax.jvp(f, (1.0, 2.0), (1.0, 1.0))


def test_arguments_that_are_not_differentiated():
    @partial(jax.custom_vjp, nondiff_argnums=(0,))
    def f(fn, x):
        return fn(x)

    f.defvjp(lambda fn, x: (fn(x), x), lambda fn, x, g: (g * fn(x) * 100,))
    np.testing.assert_allclose(jax.grad(lambda x: f(jnp.sin, x))(1.0), 100 * np.sin(1.0), rtol=1e-6)


def test_rules_are_checked():
    g = jax.custom_vjp(lambda x: x)
    with pytest.raises(AttributeError, match="No VJP defined"):
        g(1.0)
    for fwd, bwd, match in (
        (lambda x: x, lambda r, c: (c,), "must produce a pair"),
        (lambda x: (x, None), lambda r, c: c, "must produce a tuple of length equal"),
        (lambda x: (x, None), lambda r, c: (c, c), "same container"),
    ):
        g.defvjp(fwd, bwd)
        with pytest.raises(TypeError, match=match):
            jax.grad(g)(1.0)
    g.defvjp(lambda x: (x, None), lambda r, c: (jnp.ones(3),))
    with pytest.raises(ValueError, match="shapes do not match"):
        jax.grad(g)(1.0)


def test_custom_jvp_in_both_modes():
    @jax.custom_jvp
    def f(x):
        return jnp.sin(x)

    @f.defjvp
    def rule(primals, tangents):
        (x,), (t,) = primals, tangents
        return f(x), 10 * jnp.cos(x) * t

    cos, sin = np.cos(1.0), np.sin(1.0)
    for way in (
        jax.grad(f), lambda x: jax.jvp(f, (x,), (1.0,))[1], jax.jit(jax.grad(f)), jax.jacfwd(f),
        jax.grad(jax.jit(f)), lambda x: jax.linearize(f, x)[1](1.0),
        lambda x: jax.vmap(jax.grad(f))(jnp.ones(2))[0],
    ):  # fmt: skip
        np.testing.assert_allclose(way(1.0), 10 * cos, rtol=1e-6)
    np.testing.assert_allclose(jax.hessian(f)(1.0), -10 * sin, rtol=1e-6)
    m = jax.custom_jvp(lambda x, y: x * y)
    m.defjvps(lambda t, out, x, y: t * y * 10, None)
    assert [float(g) for g in jax.grad(m, argnums=(0, 1))(2.0, 3.0)] == [30.0, 0.0]


def test_checkpoint_follows_what_it_closes_over():
    def f(w):
        return jax.checkpoint(lambda x: jnp.sin(jnp.sin(x * w)))(1.0)

    wanted = np.cos(np.sin(2.0)) * np.cos(2.0)
    np.testing.assert_allclose(jax.grad(f)(2.0), wanted, rtol=1e-6)
    np.testing.assert_allclose(jax.jacfwd(f)(2.0), wanted, rtol=1e-6)
    assert "checkpoint" in str(jax.make_jaxpr(f)(2.0))
