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
    steps = out.strides[0], a.strides[0], 1, 0, 0, 1, 0, 0
    run(out.ctypes.data, a.ctypes.data, p, q, *steps)
    assert (out[:, :q] == a[:, :p].T).all() and not out[:, q:].any()


def test_two_axes_of_matrices():
    run = turn(4)
    if run is None:
        pytest.skip("no code is made on this machine")
    a = np.random.default_rng(0).normal(size=(3, 20, 2, 17)).astype(np.float32)
    out = np.zeros((2, 3, 17, 20), np.float32)
    outer = [n for axis in (0, 2) for n in (a.shape[axis], out.strides[axis == 0], a.strides[axis])]
    run(out.ctypes.data, a.ctypes.data, 17, 20, out.strides[2], a.strides[1], *outer)
    assert (out == a.transpose(2, 0, 3, 1)).all()
