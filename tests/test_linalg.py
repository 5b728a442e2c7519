"""``dt.linalg``: the names that it publishes, and their argument ``out``."""

import pickle

import numpy as np
import pytest

import disttrain as dt

A = np.random.default_rng(0).standard_normal((3, 3))
ONE = ["cond", "det", "inv", "matrix_norm", "norm", "svdvals", "vector_norm"]


@pytest.mark.parametrize("name", dt.linalg.__all__)
def test_a_name_is_found_again(name):
    thing = getattr(dt.linalg, name)
    assert pickle.loads(pickle.dumps(thing)) is thing


@pytest.mark.parametrize("name", ONE)
def test_results_into_what_is_given(name):
    fn, given = getattr(dt.linalg, name), dt.tensor(A)
    want = fn(given)
    out = dt.empty(want.shape, dtype=dt.float64)
    assert fn(given, out=out) is out
    np.testing.assert_array_equal(out.numpy(), want.numpy())
