"""Activations, attention and initializers of ``jax.nn``."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain.compat.jax.numpy as jnp
from disttrain.compat.jax import nn, random
from disttrain.compat.jax.nn import initializers

X = jnp.asarray([-2.0, 0.0, 3.0])


def test_activations():
    assert nn.relu(X).tolist() == [0, 0, 3] and nn.relu(jnp.int32(-1)).dtype == "int32"
    assert nn.softmax(X).sum().item() == pytest.approx(1)
    assert nn.silu(1.0).weak_type and nn.gelu(X).dtype == "float32"
    np.testing.assert_allclose(
        np.asarray(nn.log_softmax(X)), np.asarray(jnp.log(nn.softmax(X))), rtol=1e-5
    )
    assert nn.one_hot(jnp.asarray([1, 7]), 3).tolist() == [[0, 1, 0], [0, 0, 0]]
    with pytest.raises(ValueError, match="divisible by 2"):
        nn.glu(X)


def test_attention_may_have_fewer_heads():
    q, k = jnp.ones((2, 3, 4, 8)), jnp.ones((2, 5, 2, 8))
    assert nn.dot_product_attention(q, k, k).shape == (2, 3, 4, 8)
    assert nn.dot_product_attention(q[0], k[0], k[0], scale=0.1).shape == (3, 4, 8)
    with pytest.raises(ValueError, match="do not fit"):
        nn.dot_product_attention(q, k, k[:, :3])


def test_weights_have_their_deviations():
    key, shape = random.key(0), (200, 100)
    for name, want in (("glorot_normal", (2 / 300) ** 0.5), ("he_uniform", 0.1),
                       ("lecun_normal", 200**-0.5)):  # fmt: skip
        weights = getattr(initializers, name)()(key, shape)
        assert float(weights.std()) == pytest.approx(want, rel=0.05)
    assert initializers.zeros(key, (2,)).tolist() == [0, 0]
    assert initializers.constant(3)(key, (2,), jnp.int32).dtype == "int32"
    square = initializers.orthogonal()(key, (4, 4))
    np.testing.assert_allclose(np.asarray(square @ square.T), np.eye(4), atol=1e-5)
    assert initializers.delta_orthogonal()(key, (3, 2, 2))[0].tolist() == [[0, 0], [0, 0]]
    assert float(initializers.truncated_normal(1.0)(key, shape).max()) <= 2
    with pytest.raises(ValueError, match="Must be at least 2D"):
        initializers.he_normal()(key, (3,))
    with pytest.raises(ValueError, match="invalid mode"):
        initializers.variance_scaling(1.0, "odd", "normal")(key, shape)


def test_makers_have_their_names():
    assert initializers.he_normal.__name__ == "he_normal"
    assert initializers.normal(1.0, jnp.float16)(random.key(0), (2,)).dtype == jnp.float16
