"""Checks that a program makes itself."""

from __future__ import annotations

import pytest

import disttrain.compat.jax as jax
from disttrain.compat.jax import checkify, errors
from disttrain.compat.jax import numpy as jnp


def halved(x):
    checkify.check(x > 0, "x must be positive, got {x}", x=x)
    return x / 2


def test_at_once():
    assert float(halved(jnp.asarray(2.0))) == 1
    with pytest.raises(ValueError, match="must be positive"):
        halved(jnp.asarray(-1.0))


def test_as_an_error_beside_the_result():
    error, out = checkify.checkify(halved)(jnp.asarray(-2.0))
    assert float(out) == -1 and "must be positive" in error.get()
    with pytest.raises(checkify.JaxRuntimeError):
        error.throw()
    error, _ = checkify.checkify(halved)(jnp.asarray(2.0))
    assert error.get() is None
    checkify.check_error(error)


def test_traced():
    with pytest.raises(errors.ConcretizationTypeError):
        jax.jit(halved)(jnp.asarray(1.0))


def test_for_debugging_alone():
    checkify.debug_check(False, "never")
    error, _ = checkify.checkify(lambda: checkify.debug_check(jnp.asarray(False), "said"))()
    assert error.get() == "said"
