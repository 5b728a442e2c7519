"""Rows copied between arrays in which other things stand between them."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.backends.llvm.kernels.blocks import copy


@pytest.mark.parametrize("row", [1, 3, 4, 15, 16, 17, 31, 50])
def test_rows_go_where_they_belong_and_nothing_else_is_touched(row):
    rng = np.random.default_rng(row)
    source = rng.normal(size=(3, 4, 5, row + 2)).astype("f4")
    to = np.zeros((4, 6, 6, row + 5), "f4")
    wanted = to.copy()
    wanted[1:, 1:5, :5, 2 : 2 + row] = source[..., 1 : 1 + row]
    into, part = to[1:, 1:5, :5, 2 : 2 + row], source[..., 1 : 1 + row]
    run = copy()
    if run is not None:
        at, of = (a.__array_interface__["data"][0] for a in (into, part))
        run(at, of, 3, 4, 5, 4 * row, *into.strides[:3], *part.strides[:3])
        assert np.array_equal(to, wanted)
