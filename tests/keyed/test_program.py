"""Keys, choices and orders for a program whose arrays are tensors."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain import keyed
from disttrain.arrays.lifting import Lifting
from disttrain.core.types import dtypes
from disttrain.keyed.program import IMPL, Keys

KEYS = Keys(Lifting(), "program.random", "Program", dtypes.key)
NAMES = KEYS.names()


def test_keys():
    key = KEYS.key(3)
    assert key.dtype is dtypes.key and KEYS.is_key(key) and not KEYS.is_key(3)
    words = KEYS.key_data(key)
    assert words.tolist() == keyed.data(keyed.seed(3)).tolist()
    assert KEYS.key_data(KEYS.wrap_key_data(words)).tolist() == words.tolist()
    assert KEYS.split(key, (2, 3)).shape == (2, 3) and KEYS.split(words).shape == (2, 2)
    assert KEYS.fold_in(words, 1).shape == (2,) and KEYS.clone(key) is key
    assert KEYS.key_impl(key) == IMPL and KEYS.key_dtype() is dtypes.key


def test_choices_and_orders():
    key = KEYS.key(0)
    assert sorted(NAMES["permutation"](key, 5).tolist()) == [0, 1, 2, 3, 4]
    assert sorted(NAMES["permutation"](key, np.float32([1, 2])).tolist()) == [1.0, 2.0]
    assert NAMES["choice"](key, 3, (4,), p=[0.0, 1.0, 0.0]).tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: KEYS.split("a"), TypeError, "unexpected PRNG key type"),
        (lambda: KEYS.split(KEYS.split(KEYS.key(0))), ValueError, r"Use program\.vmap"),
        (lambda: KEYS.key_data(np.int32([1, 2])), TypeError, "Program encountered .* uint32"),
        (lambda: KEYS.key_data(np.uint64([1, 2])), TypeError, "uint32; got dtype=uint64"),
        (lambda: KEYS.key_data(np.uint32([1])), TypeError, "shape to end with"),
        (lambda: KEYS.key(1.5), TypeError, "must be an integer"),
        (lambda: KEYS.key(KEYS.key(1)), TypeError, "was given a PRNG key"),
        (lambda: KEYS.key([1]), TypeError, "array of shape"),
        (lambda: KEYS.key(1, impl="rbg"), NotImplementedError, "is not here"),
        (lambda: KEYS.key(1, impl="odd"), ValueError, "unrecognized"),
        (lambda: KEYS.key(1, impl=IMPL, dtype=dtypes.key), ValueError, r"program\.random\.key"),
        (lambda: KEYS.fold_in(KEYS.key(0), -1), OverflowError, "out of bounds"),
        (lambda: KEYS.fold_in(KEYS.key(0), [1]), TypeError, "fold_in accepts a scalar"),
        (lambda: KEYS.permutation(KEYS.key(0), 1.5), TypeError, "x must be an integer"),
        (lambda: KEYS.choice(KEYS.key(0), 3, 4), TypeError, "must be a sequence"),
    ],
)
def test_what_is_no_key(call, error, words):
    with pytest.raises(error, match=words):
        call()
