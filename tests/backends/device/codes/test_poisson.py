"""Poisson counts by counter: their moments, their ends, and that they are of the counter alone."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.backends.device.codes.poisson import POISSON
from disttrain.errors import ConfigError


def draw(rates, seed: int = 3, offset: int = 0) -> np.ndarray:
    rates = np.asarray(rates, np.float64)
    out = np.full(rates.shape, -9.0)
    POISSON.reference(rates, out, seed, offset)
    return out


@pytest.mark.parametrize("rate", [0.5, 9.5, 10.5, 200.0])  # on both sides of the two ways
def test_mean_and_variance_are_the_rate(rate):
    counts = draw(np.full(1500, rate))
    assert (counts >= 0).all() and (counts == np.floor(counts)).all()
    assert counts.mean() == pytest.approx(rate, abs=5 * (rate / 1500) ** 0.5)
    assert counts.var() == pytest.approx(rate, rel=0.25)


def test_ends():
    found = draw([0.0, 2.0**64, np.inf])
    assert found[0] == 0 and np.isnan(found[1:]).all()


@pytest.mark.parametrize("wrong", [-1.0, np.nan])
def test_rates_below_0_are_refused(wrong):
    with pytest.raises(ConfigError):
        draw([1.0, wrong])


def test_an_element_has_counters_of_its_own():
    rates = np.full(50, 30.0)
    assert (draw(rates) == draw(rates)).all()
    assert (draw(rates)[:20] == draw(rates[:20])).all()
    assert (draw(rates) != draw(rates, seed=4)).any()
    assert (draw(rates) != draw(rates, offset=1)).any()
