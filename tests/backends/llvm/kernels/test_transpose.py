"""Turned copies of matrices, by blocks in registers."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.backends.llvm.kernels.transpose import turn


@pytest.mark.parametrize("item", [1, 2, 4, 8])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (8, 8), (16, 16), (17, 33), (64, 5), (100, 100)])
def test_every_element_arrives(item, shape):
    run = turn(item)
    if run is None:
        pytest.skip("no code is made on this machine")
    p, q = shape
    wide = np.random.default_rng(0).integers(0, 256, (q, (p + 3) * item), dtype=np.uint8)
    a = wide.view(f"u{item}")
    out = np.zeros((p, q + 2), a.dtype)
    run(out.ctypes.data, a.ctypes.data, p, q, out.strides[0], a.strides[0])
    assert (out[:, :q] == a[:, :p].T).all() and not out[:, q:].any()
