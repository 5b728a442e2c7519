"""Histograms grow with what they are given, and their limits lose least."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.quantize.histogram import best_limits, merged

RNG = np.random.default_rng(0)


def test_counts_are_kept_when_the_range_grows():
    first = RNG.normal(size=1000)
    counts, low, high = merged(None, first, 64)
    assert (low, high) == (first.min(), first.max()) and counts.sum() == 1000
    again, *ends = merged((counts, low, high), first, 64)
    assert np.array_equal(again, 2 * counts) and ends == [low, high]
    wide, *ends = merged((counts, low, high), np.array([-9.0, 20.0]), 64)
    assert ends == [-9.0, 20.0] and abs(wide.sum() - 1002) < 1e-9


def test_equal_numbers():
    counts, low, high = merged(None, np.full(5, 2.5), 8)
    assert counts.sum() == 5 and (low, high) == (2.5, 2.5)
    assert best_limits(counts, low, high, 255, False) == (2.5, 2.5)
    counts, *ends = merged((counts, low, high), np.array([3.0]), 8)
    assert ends == [2.5, 3.0] and abs(counts.sum() - 6) < 1e-9


def lost(values, a, b, steps):
    scale = (b - a) / steps
    levels = np.clip(np.rint((values - a) / scale), 0, steps)
    return ((levels * scale + a - values) ** 2).mean()


@pytest.mark.parametrize("steps", [15, 255])
@pytest.mark.parametrize("symmetric", [False, True])
def test_far_numbers_are_cut_off_where_that_gains(steps, symmetric):
    values = np.concatenate([RNG.normal(size=20_000), [40.0]])
    counts, low, high = merged(None, values, 2048)
    a, b = best_limits(counts, low, high, steps, symmetric)
    assert low <= a <= 0 <= b <= high
    widest = (-40.0, 40.0) if symmetric else (low, high)
    mine = (-max(-a, b), max(-a, b)) if symmetric else (a, b)
    assert lost(values, *mine, steps) < lost(values, *widest, steps)
    if steps == 15:
        assert b < 10


def test_numbers_of_one_sign_have_zero_within():
    counts, low, high = merged(None, RNG.uniform(5, 6, 1000), 256)
    a, b = best_limits(counts, low, high, 255, False)
    assert a == 0 and 5.9 < b <= high
