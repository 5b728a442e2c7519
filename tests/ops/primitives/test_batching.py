"""What batch rules share."""

from __future__ import annotations

import disttrain as dt
from disttrain.ops.primitives import batching
from disttrain.ops.primitives.views import flip


def test_a_batch_dimension_comes_to_the_front_or_is_made():
    x = dt.arange(6.0).reshape(2, 3)
    assert batching.fronted(x, 1, 3).tolist() == x.T.tolist()
    assert batching.fronted(x, 0, 2).tolist() == x.tolist()
    assert batching.fronted(x, None, 4).tolist() == [x.tolist()] * 4


def test_merging_and_splitting_are_inverse():
    x = dt.arange(24.0).reshape(2, 3, 4)
    for first, size in ((0, 2), (1, 3)):
        merged = batching.merge(x, first)
        assert merged.ndim == 2 and batching.split(merged, size, first).tolist() == x.tolist()
    assert batching.split(dt.zeros(0, 4), 0).shape == (0, 0, 4)


def test_leading_dimensions_are_led_by_the_batch():
    x = dt.arange(6.0).reshape(2, 3)
    rule = batching.leading(lambda: flip)
    out, dim = rule((x,), (1,), {"dims": (1,)}, 3)
    assert dim == 0 and out.tolist() == x.T.flip(1).tolist()
    assert dt.func.vmap(lambda r: r.flip(0))(x).tolist() == x.flip(1).tolist()
