"""Options."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain.compat.jax as jax

jnp = jax.numpy


def test_options_hold_in_their_blocks():
    assert jnp.ones(1).dtype == np.float32
    with jax.enable_x64(True):
        assert jnp.ones(1).dtype == np.float64 and jax.config.jax_enable_x64
    assert not jax.config.read("jax_enable_x64")
    with pytest.raises(AttributeError, match="Unrecognized config option"):
        jax.config.update("nope", 1)


def test_arrays_go_to_devices_and_back():
    put = jax.device_put({"a": 1.0, "b": [np.ones(2)]})
    assert isinstance(put["a"], jax.Array) and put["a"].weak_type
    assert isinstance(jax.device_get(put)["b"][0], np.ndarray)
    assert jax.block_until_ready(put) is put
