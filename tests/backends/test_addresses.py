"""The address read from an array's header is the one that numpy tells."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.backends import addresses


@pytest.mark.parametrize("find", [addresses.address, addresses._asked])
def test_where_arrays_lie(find):
    whole = np.arange(60.0).reshape(3, 4, 5)
    fixed = np.broadcast_to(np.float32(1), (3, 3))
    for a in (whole, whole[1:, ::2], whole[::-1, :, 1], whole.T, np.empty((0, 3)), fixed, whole[1]):
        assert find(a) == a.__array_interface__["data"][0]
