"""Threads of numpy's BLAS."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.backends import blas


def test_what_is_told_is_what_is_asked():
    before = blas.num_threads()
    if before is None:
        pytest.skip("this BLAS cannot be asked")
    try:
        assert blas.set_num_threads(1) and blas.num_threads() == 1
        a = np.random.default_rng(0).normal(size=(300, 300))
        one = a @ a
        blas.set_num_threads(2)
        np.testing.assert_allclose(a @ a, one)
    finally:
        blas.set_num_threads(before)
    assert blas.num_threads() == before
