"""The type of keys: one, equal to itself alone."""

from __future__ import annotations

import numpy as np

from disttrain.compat.jax import key_types, random


def test_the_type():
    kind = random.key(0).dtype
    assert kind == key_types.key_type and hash(kind) == hash(key_types.KeyType())
    assert kind != np.dtype("V8") and repr(kind) == "key<fry>" and kind.itemsize == 8
    assert issubclass(kind.type, key_types.prng_key)
    assert random.KEYS.is_key(random.key(0)) and not random.KEYS.is_key(random.PRNGKey(0))
    assert key_types.shown(np.dtype(np.float32)) == np.float32
