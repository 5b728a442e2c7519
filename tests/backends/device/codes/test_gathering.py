"""Rows added where an index says."""

import numpy as np
import pytest

from disttrain.backends.device.codes import table as codes
from disttrain.errors import DimError


def test_rows_are_added_where_their_index_says():
    rng = np.random.default_rng(2)
    index, g = rng.integers(0, 6, 300), rng.normal(size=(300, 4))
    out, want = np.zeros((6, 4)), np.zeros((6, 4))
    order = np.argsort(index, kind="stable")
    codes.ADD_ROWS.reference(g, order, index[order], out)
    np.add.at(want, index, g)
    np.testing.assert_allclose(out, want, rtol=1e-12)
    with pytest.raises(DimError, match="take: index 7 is out of range for 4 rows"):
        codes.TAKE.reference(np.zeros((1, 4, 2)), np.array([3, 7]), np.zeros((1, 2, 2)))
