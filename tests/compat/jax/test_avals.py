"""Shapes and types without numbers."""

from __future__ import annotations

import numpy as np

import disttrain.compat.jax as jax

jnp = jax.numpy


def test_eval_shape_computes_nothing():
    shape = jax.ShapeDtypeStruct((1 << 20, 1 << 20), np.float32)
    out = jax.eval_shape(lambda x: {"a": x @ x}, shape)
    assert out == {"a": shape}
    assert repr(jax.eval_shape(lambda x: x, 1.0)) == (
        "ShapeDtypeStruct(shape=(), dtype=float32, weak_type=True)"
    )
    assert shape.update(shape=(2,)).size == 2 and len({shape, out["a"]}) == 1
