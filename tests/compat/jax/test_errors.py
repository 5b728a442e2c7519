"""JAX's errors."""

from __future__ import annotations

import pytest

import disttrain.compat.jax as jax
from disttrain.compat.jax import errors


def test_their_tree():
    assert issubclass(errors.TracerBoolConversionError, errors.ConcretizationTypeError)
    assert issubclass(errors.ConcretizationTypeError, TypeError)
    assert issubclass(errors.NonConcreteBooleanIndexError, IndexError)


def test_they_name_the_function_and_the_arguments():
    def f(first, second, third):
        return int(first + third)

    with pytest.raises(errors.ConcretizationTypeError) as found:
        jax.jit(f)(1, 2, 3)
    text = str(found.value)
    assert "tracing the function f at" in text and "for jit" in text
    assert "the values of the arguments first and third" in text


def test_masks_that_are_traced_are_no_indices():
    with pytest.raises(errors.NonConcreteBooleanIndexError):
        jax.jit(lambda x: x[x > 1])(jax.numpy.arange(3.0))
