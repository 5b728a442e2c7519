"""Python inside programs."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain.compat.jax as jax
from disttrain.compat.jax.callbacks import io_callback

jnp = jax.numpy
SCALAR = jax.ShapeDtypeStruct((), np.float32)


def test_prints_whenever_the_program_runs(capsys):
    @jax.jit
    def f(x):
        jax.debug.print("x={x} {} {name}", 3, x=x, name="n")
        return x

    for v in (1.0, 2.0):
        f(v)
    jax.vmap(f)(jnp.arange(2.0))
    jax.grad(f)(4.0)
    jax.debug.print("{v:.2f}", v=jnp.float32(1.5))
    assert capsys.readouterr().out.splitlines() == [
        "x=1.0 3 n", "x=2.0 3 n", "x=0.0 3 n", "x=1.0 3 n", "x=4.0 3 n", "1.50",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="Unused keyword arguments"):
        jax.debug.print("{}", 1, x=2)


def test_pure_callbacks():
    shapes = []

    def host(x):
        shapes.append(np.shape(x))
        return np.sin(np.asarray(x))

    f = lambda x, how=None: jax.pure_callback(host, SCALAR, x, vmap_method=how)
    np.testing.assert_allclose(jax.jit(f)(1.0), np.sin(1.0), rtol=1e-6)
    for how in ("sequential", "expand_dims"):
        jax.vmap(lambda x, how=how: f(x, how))(jnp.ones(2))
    assert shapes == [(), (), (), (2,)]
    with pytest.raises(NotImplementedError, match="vmap_method is one of"):
        jax.vmap(f)(jnp.ones(2))
    with pytest.raises(ValueError, match="do not support JVP"):
        jax.grad(f)(1.0)
    with pytest.raises(jax.errors.JaxRuntimeError, match="Mismatched result shape"):
        jax.pure_callback(lambda x: np.ones(3), SCALAR, 1.0)


def test_callbacks_with_effects_run_unused():
    seen = []
    jax.jit(lambda x: io_callback(lambda v: seen.append(float(v)), None, x))(3.0)
    assert seen == [3.0]
