"""``jax.core``, ``dtypes``, ``flatten_util``, ``test_util``: their few names."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain.compat.jax as jax
from disttrain.compat.jax import key_types, random
from disttrain.compat.jax import numpy as jnp
from disttrain.compat.jax import small_modules as small


def test_tracers():
    seen = []
    jax.jit(lambda x: seen.append(isinstance(x, small.Tracer)) or x)(jnp.ones(2))
    jax.grad(lambda x: seen.append(isinstance(x, small.Tracer)) or x)(1.0)
    assert seen[0] and not isinstance(jnp.ones(2), small.Tracer)


def test_types_of_keys():
    kind = random.key(0).dtype
    assert jnp.issubdtype(kind, key_types.prng_key)
    assert jnp.issubdtype(kind, key_types.extended)
    assert not jnp.issubdtype(kind, np.floating)
    assert not jnp.issubdtype(np.float32, key_types.prng_key)
    assert jnp.issubdtype(jnp.ones(1).dtype, jnp.floating)
    assert jnp.issubdtype(np.int32, jnp.integer)
    assert small.canonicalize_dtype("float64") == np.float32
    assert small.canonicalize_dtype(kind) is kind
    assert small.result_type(jnp.ones(1), 2) == np.float32


def test_ravel_pytree():
    tree = {"a": jnp.arange(3.0), "b": [jnp.ones((2, 2)), jnp.asarray(7)]}
    flat, unravel = small.NAMES["flatten_util"]["ravel_pytree"](tree)
    assert flat.shape == (8,)
    back = unravel(flat * 2)
    assert back["b"][1].dtype == np.int32 and int(back["b"][1]) == 14
    assert jax.tree.structure(back) == jax.tree.structure(tree)
    with pytest.raises(TypeError, match="expected shape"):
        unravel(jnp.ones(3))


def test_check_grads():
    small.check_grads(lambda x, y: {"a": jnp.sin(x) * y}, (jnp.ones(3), 2.0), 2)
    with pytest.raises(AssertionError):
        wrong = jax.custom_jvp(jnp.sin)
        wrong.defjvp(lambda x, t: (jnp.sin(x[0]), t[0]))
        small.check_grads(wrong, (jnp.ones(3),), 1, modes=["fwd"])
