"""Checks of values: what their references refuse, and the steps that devices are given."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.backends.device.codes import checks
from disttrain.errors import ConfigError, DimError


@pytest.mark.parametrize("index", [[0, 4], [-100, 2], []])
def test_places_within_or_skipped_pass(index):
    checks.within("nll").reference(np.array(index, np.int64), 5, -100)


@pytest.mark.parametrize("wrong", [5, -1, -99])
def test_places_outside_are_named(wrong):
    with pytest.raises(DimError, match=f"nll: index {wrong} is out of range for 5 rows"):
        checks.within("nll").reference(np.array([0, wrong], np.int64), 5, -100)


def test_one_code_for_a_name():
    assert checks.within("nll") is checks.within("nll")
    assert checks.within("nll") is not checks.within("bags")


@pytest.mark.parametrize("wrong", [-0.1, 1.1, np.nan])
def test_probabilities_lie_between_0_and_1(wrong):
    checks.probabilities(np.array([0.0, 1.0]))
    with pytest.raises(ConfigError, match="bernoulli"):
        checks.probabilities(np.array([0.5, wrong]))


@pytest.mark.parametrize("wrong", [-1e-9, np.nan])
def test_rates_are_not_below_0(wrong):
    checks.rates(np.array([0.0, 1e30]))
    with pytest.raises(ConfigError, match="poisson"):
        checks.rates(np.array([1.0, wrong]))
