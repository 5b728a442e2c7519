"""Rows are added up in the order that they come in, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.backends.fused.scatter import add_rows


@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("seed", range(30))
def test_drawn_rows(kind, seed):
    rng = np.random.default_rng(seed)
    n, d, size = (int(k) for k in rng.integers(1, [400, 200, 900]))
    g = rng.normal(size=(n, 2 * d)).astype(kind)[:, :: int(rng.choice([1, 2]))]
    g = np.asfortranarray(g) if rng.random() < 0.3 else g
    index = rng.integers(0, size, 2 * n)[::2]
    out, wanted = add_rows(g, index, size), np.zeros((size, g.shape[1]), kind)
    if out is None:
        assert g.size < 4096
        return
    np.add.at(wanted, index, g)
    assert np.array_equal(out, wanted)
