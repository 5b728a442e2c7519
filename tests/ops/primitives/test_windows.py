"""Where windows lie in padded arrays."""

from __future__ import annotations

import numpy as np

from disttrain.ops.primitives import windows as win


def test_each_tap_of_a_kernel_has_its_slices():
    found = list(win.taps((2, 2), (2, 3), (2, 1), (1, 2)))
    assert [tap for tap, _ in found] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    a = np.arange(20).reshape(4, 5)
    for (i, j), where in found:
        assert a[where].tolist() == [[a[2 * r + i, c + 2 * j] for c in range(3)] for r in range(2)]
