"""Code that rounds rows to integers: levels, scales and zero points are those of numpy."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.backends import host
from disttrain.backends.addresses import address
from disttrain.backends.fused.products import int8_product as products
from disttrain.backends.llvm.kernels import int8_product as code

WAYS = [n for n, way in code.WAYS.items() if host.cpu().features.issuperset(way.needs)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("grid", [(0, 255, False), (-127, 127, True), (-128, 127, False)])
def test_levels(way, grid):
    found, rng = code.dynamic(way), np.random.default_rng(0)
    if found is None:
        pytest.skip("no machine code here")
    for k in (3, 64, 100):
        for groups, m in ((1, 4), (4, 4), (2, 6)):
            x, width = rng.normal(0.3, 2, (m, k)).astype("f4"), code.padded(way, k)
            out, own = np.zeros((m, width), np.uint8), np.empty((2, m), np.float32)
            places = address(out), address(x), address(own), address(own[1:])
            found[0](*places, groups, m // groups, k, width, *grid)
            levels, scale, zero = products.rounded(x, groups, products.Grid(*grid))
            turn = 128 if grid[0] < 0 else 0
            whole, block = (levels.astype(int) + turn).astype(np.uint8), code.WAYS[way].block
            wanted = code.blocks(whole, width, block)
            assert np.array_equal(out, wanted) and np.array_equal(own[0], scale)
            assert np.array_equal(own[1].view(np.int32), zero + turn)
