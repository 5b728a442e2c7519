"""Optimizers of trees: their state is packed, taken apart and put together; steps go down."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain.compat.jax as jax
from disttrain.compat.jax import numpy as jnp
from disttrain.compat.jax.example_libraries import optimizers

MAKERS = {
    "sgd": (0.1,), "momentum": (0.05, 0.9), "nesterov": (0.05, 0.9), "adagrad": (0.5,),
    "rmsprop": (0.1,), "rmsprop_momentum": (0.02,), "adam": (0.1,), "adamax": (0.1,), "sm3": (0.5,),
}  # fmt: skip
ADAM = [0.8004138469696045, -0.8004138469696045]  # jax 0.10.2: two steps from (1, -1), rate 0.1


def params():
    return {"w": jnp.asarray([[1.0, -2.0], [0.5, 3.0]]), "b": jnp.asarray([0.3])}


def loss(p):
    return jnp.sum(p["w"] ** 2) + jnp.sum(p["b"] ** 2)


@pytest.mark.parametrize("name", MAKERS)
def test_down(name):
    init, update, get = getattr(optimizers, name)(*MAKERS[name])
    state = init(params())
    for i in range(30):
        state = update(i, jax.grad(loss)(get(state)), state)
    assert float(loss(get(state))) < 0.5 * float(loss(params()))
    assert jax.tree.structure(get(state)) == jax.tree.structure(params())


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam"])
def test_staged(name):
    init, update, get = getattr(optimizers, name)(*MAKERS[name])
    state = init(params())
    grads = jax.grad(loss)(params())
    plain, staged = update(3, grads, state), jax.jit(update)(3, grads, state)
    for a, b in zip(jax.tree.leaves(get(plain)), jax.tree.leaves(get(staged)), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-6)


def test_packed_and_unpacked():
    init, update, get = optimizers.adam(0.1)
    state = update(0, jax.grad(loss)(params()), init(params()))
    again = optimizers.pack_optimizer_state(optimizers.unpack_optimizer_state(state))
    assert again.tree_def == state.tree_def
    assert np.array_equal(np.asarray(get(again)["w"]), np.asarray(get(state)["w"]))


def test_numbers():
    init, update, get = optimizers.adam(0.1)
    state = init(jnp.asarray([1.0, -1.0]))
    for i in range(2):
        state = update(i, get(state), state)
    np.testing.assert_allclose(np.asarray(get(state)), ADAM, rtol=1e-6)


def test_schedules_and_clipping():
    pieces = optimizers.piecewise_constant([2, 5], [1.0, 0.5, 0.1])
    assert [round(float(pieces(i)), 3) for i in (0, 2, 3, 9)] == [1.0, 1.0, 0.5, 0.1]
    clipped = optimizers.clip_grads(params(), 1.0)
    assert np.isclose(float(optimizers.l2_norm(clipped)), 1.0)


def test_wrong_trees():
    init, update, _ = optimizers.sgd(0.1)
    with pytest.raises(TypeError, match="did not match the parameter tree"):
        update(0, {"w": jnp.ones(2)}, init(params()))
    with pytest.raises(TypeError):
        optimizers.make_schedule([0.1, 0.2])
    with pytest.raises(ValueError, match="one shorter"):
        optimizers.piecewise_constant([1], [1.0])
