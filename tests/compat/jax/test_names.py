"""The modules that JAX's face publishes."""

from __future__ import annotations

import pickle

import pytest

import disttrain.compat.jax as jax
from disttrain.compat.publish import MissingName


def test_modules_stand_under_their_parents():
    modules = jax.build()
    assert next(iter(modules)) == "jax"
    for name in list(modules)[1:]:
        assert name.rpartition(".")[0] in modules, name
    assert modules["jax.tree"].map is jax.tree.map and modules["jax"].grad is jax.grad


def test_what_is_lacking_is_said():
    with pytest.raises(MissingName, match=r"jax\.gradd is not part of .*near it: grad"):
        jax.gradd


@pytest.mark.parametrize("name", ["where", "einsum", "array", "full"])
def test_functions_are_pickled_by_name(name):
    assert pickle.loads(pickle.dumps(getattr(jax.numpy, name))) == getattr(jax.numpy, name)
    assert pickle.loads(pickle.dumps(jax.random.split)) == jax.random.split
