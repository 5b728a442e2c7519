"""Generated code that adds rows to rows that numbers name."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.backends.llvm.kernels.scatter import along, scatter


@pytest.mark.parametrize(("kind", "dtype"), [("f", np.float32), ("d", np.float64)])
@pytest.mark.parametrize("width", [1, 3, 16, 17, 64])
def test_rows_are_added_in_their_order(kind, dtype, width):
    run = scatter(kind) or scatter(np.dtype(dtype).name)
    if run is None:
        pytest.skip("no code is made on this machine")
    rng = np.random.default_rng(width)
    a, index = rng.normal(size=(50, width)).astype(dtype), rng.integers(0, 7, 50)
    out, wanted = np.zeros((7, width), dtype), np.zeros((7, width), dtype)
    run(out.ctypes.data, a.ctypes.data, index.ctypes.data, 50, width)
    np.add.at(wanted, index, a)
    assert (out == wanted).all()  # the same additions in the same order


def test_other_types_have_none():
    assert scatter("complex256") is None and along("complex256") is None
