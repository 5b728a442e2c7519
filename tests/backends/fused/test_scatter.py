"""Rows are added up in the order that they come in, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.backends.fused.scatter import add_along, add_rows


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


@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("seed", range(20))
def test_drawn_numbers_along_an_axis(kind, seed):
    rng = np.random.default_rng(seed)
    shape = tuple(int(k) for k in rng.integers(1, [30, 40, 20]))
    dim = int(rng.integers(0, 3))
    given = (*shape[:dim], int(rng.integers(1, 60)), *shape[dim + 1 :])
    g = np.asfortranarray(rng.normal(size=given).astype(kind))
    index = rng.integers(0, shape[dim], given)
    out, wanted = add_along(g, index, dim, shape), np.zeros(shape)
    if out is None:
        assert g.size < 4096
        return
    places = list(np.indices(given))
    places[dim] = index
    np.add.at(wanted, tuple(places), g)
    assert out.dtype == g.dtype
    assert np.array_equal(out, wanted.astype(kind))


def test_places_outside_and_smaller_indices_are_left_to_others():
    g, index = np.ones((70, 70)), np.zeros((70, 70), np.int64)
    assert add_along(g, index, 1, (70, 5)) is not None
    assert add_along(g, index + 5, 1, (70, 5)) is None
    assert add_along(g, index - 1, 1, (70, 5)) is None
    assert add_along(g, index, 1, (80, 5)) is None
    assert add_along(g.astype(int), index, 1, (70, 5)) is None
