"""Arrays of JAX's face: covers of tensors, in JAX's types."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
import disttrain.compat.jax as jax
from disttrain.compat.jax import numpy as jnp
from disttrain.compat.jax.array import unwrap, wrap

pytestmark = pytest.mark.simulated


def test_operands_meet_in_one_type():
    add = jnp.add
    half = wrap(dt.ones(2, dtype=dt.bfloat16))
    assert add(half, 2.5).dtype == half.dtype and not add(half, 2.5).weak_type
    assert add(half, np.ones(2, np.float32)).dtype == np.float32
    assert add(np.int64(1), 2).dtype == np.int32
    assert add(1, 2).weak_type and add(wrap(dt.ones(2, dtype=dt.int32)), 1.0).weak_type


def test_sequences_of_arrays_are_arrays():
    made = unwrap([wrap(dt.ones(2)), [2, 3.5]])
    assert made.tolist() == [[1, 1], [2, 3.5]]


def test_arrays_are_ready():
    x = jnp.arange(3.0)
    assert x.block_until_ready() is x and x.is_ready() and not x.is_deleted()
    assert x.copy_to_host_async() is None and x.tobytes() == np.arange(3.0, dtype="f4").tobytes()
    assert x.aval == jax.typeof(x)._replace(sharding=None)
    assert x.to_device(jax.devices()[0]).device == jax.devices()[0]
