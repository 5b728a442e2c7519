"""Layers as pairs of functions: shapes that are said are those that come, and gradients flow."""

from __future__ import annotations

import pytest

import disttrain.compat.jax as jax
from disttrain.compat.jax import numpy as jnp
from disttrain.compat.jax import random
from disttrain.compat.jax.example_libraries import stax

KEY = random.key(0)
IMAGES = (2, 8, 8, 3)
LAYERS = {
    "conv": (stax.Conv(4, (3, 3), strides=(2, 2), padding="SAME"), IMAGES),
    "transposed": (stax.ConvTranspose(4, (3, 3), strides=(2, 2)), IMAGES),
    "batch norm": (stax.BatchNorm(), IMAGES),
    "max": (stax.MaxPool((2, 2), (2, 2)), IMAGES),
    "sum": (stax.SumPool((2, 2)), IMAGES),
    "average": (stax.AvgPool((3, 3), padding="SAME"), IMAGES),
    "flat": (stax.Flatten, IMAGES),
    "relu": (stax.Relu, IMAGES),
    "many": (stax.serial(stax.Flatten, stax.Dense(5), stax.Tanh, stax.LogSoftmax), IMAGES),
    "residual": (
        stax.serial(
            stax.FanOut(2), stax.parallel(stax.Dense(3), stax.Identity), stax.FanInSum
        ), (4, 3),
    ),
    "joined": (
        stax.serial(
            stax.FanOut(2), stax.parallel(stax.Dense(2), stax.Dense(3)), stax.FanInConcat()
        ), (4, 3),
    ),
    "by shape": (stax.shape_dependent(lambda shape: stax.Dense(shape[-1])), (4, 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_shapes(name):
    (init, apply), shape = LAYERS[name]
    out, params = init(KEY, shape)
    found = apply(params, random.normal(KEY, shape), rng=KEY)
    assert tuple(found.shape) == tuple(out)


def test_unknown_batch():
    init, _ = stax.serial(stax.Conv(4, (3, 3)), stax.MaxPool((2, 2)), stax.Flatten, stax.Dense(2))
    assert init(KEY, (-1, 8, 8, 1))[0] == (-1, 2)


def test_gradients():
    init, apply = stax.serial(stax.Dense(8), stax.Relu, stax.Dense(1))
    _, params = init(KEY, (-1, 4))
    grads = jax.jit(jax.grad(lambda p: jnp.sum(apply(p, jnp.ones((3, 4))) ** 2)))(params)
    assert jax.tree.structure(grads) == jax.tree.structure(params)


def test_averages_of_edges_count_what_is_there():
    init, apply = stax.AvgPool((3, 3), padding="SAME")
    assert bool(jnp.all(apply((), jnp.ones((1, 4, 4, 1))) == 1))


def test_dropout():
    _, apply = stax.Dropout(0.5)
    kept = apply((), jnp.ones(200), rng=KEY)
    assert set(jnp.unique(kept).tolist()) == {0.0, 2.0}
    assert bool(jnp.all(stax.Dropout(0.5, mode="test")[1]((), jnp.ones(3), rng=KEY) == 1))
    with pytest.raises(ValueError, match="PRNG key argument"):
        apply((), jnp.ones(3))
