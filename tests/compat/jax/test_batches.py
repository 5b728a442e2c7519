"""vmap with JAX's axes."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain.compat.jax as jax

jnp = jax.numpy
X = np.arange(6.0, dtype=np.float32).reshape(2, 3)


def test_axes_are_trees():
    f = jax.vmap(lambda d, y: {"s": d["a"] + y}, in_axes=({"a": 0, "b": None}, None), out_axes=1)
    assert f({"a": jnp.asarray(X), "b": 1.0}, 2.0)["s"].shape == (3, 2)
    assert jax.vmap(lambda x: 1.0, in_axes=None, axis_size=3)(2.0).shape == (3,)
    assert jax.vmap(lambda *, x: x, in_axes=-1)(x=X).shape == (2, 3)
    assert jax.vmap(lambda x: jax.lax.psum(x, "i"), axis_name="i")(jnp.ones(3)).tolist() == [3] * 3


@pytest.mark.parametrize(
    ("run", "match"),
    [
        (lambda: jax.vmap(lambda x: x)(1.0), "rank should be at least 1"),
        (lambda: jax.vmap(lambda x, y: x)(X, X.T), "argument y of type float32"),
        (lambda: jax.vmap(lambda x: x, in_axes=(0, 0))(X), r"len\(in_axes\)=2"),
        (lambda: jax.vmap(lambda x: x, out_axes=None)(X), "was batched on axis 0"),
        (lambda: jax.vmap(lambda x: x, in_axes=None)(X), "at least one non-None"),
        (lambda: jax.vmap(lambda d: d, in_axes=({"a": 0},))({"b": X}), "tree prefix"),
    ],
)
def test_errors(run, match):
    with pytest.raises(ValueError, match=match):
        run()
