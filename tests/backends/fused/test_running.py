"""Running sums and products have numpy's bits, along any axis and from both ends."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.backends.fused.running import accumulate

WIDE = {"f4": "f8", "f8": "f8", "i8": "i8"}


def drawn(rng, kind):
    sizes = rng.choice([1, 2, 3, 8, 9, 31, 33, 64, 70], int(rng.integers(1, 4)))
    sizes[int(rng.integers(len(sizes)))] = rng.integers(40, 3000 // len(sizes))
    a = rng.normal(1, 0.1, sizes) if kind != "i8" else rng.integers(-9, 9, sizes)
    a = a.astype(kind).transpose(rng.permutation(a.ndim))
    if kind != "i8" and rng.random() < 0.3:
        a.flat[int(rng.integers(a.size))] = rng.choice([np.nan, np.inf, -np.inf, 0.0])
    return a[::-1] if rng.random() < 0.3 else a


@pytest.mark.parametrize("kind", WIDE)
@pytest.mark.parametrize("ufunc", [np.add, np.multiply])
def test_drawn_arrays(kind, ufunc):
    rng, done = np.random.default_rng(7), 0
    with np.errstate(all="ignore"):
        for _ in range(150):
            a = drawn(rng, kind)
            axis = int(rng.integers(a.ndim))
            for backwards in (False, True):
                out = accumulate(ufunc, a, axis, backwards)
                if out is None:
                    continue
                done += 1
                given = np.flip(a, axis) if backwards else a
                wanted = ufunc.accumulate(given, axis, dtype=WIDE[kind]).astype(kind)
                wanted = np.flip(wanted, axis) if backwards else wanted
                assert np.array_equal(out, wanted, equal_nan=kind != "i8")
    assert done > 100


def test_small_ones_and_other_types_are_left_to_numpy():
    assert accumulate(np.add, np.ones(8, "f4"), 0) is None
    assert accumulate(np.add, np.ones(8000, "f2"), 0) is None
    assert accumulate(np.add, np.ones((0, 8000), "f4"), 0) is None
