"""Public draws: ends, and what is refused."""

from __future__ import annotations

import math

import pytest

import disttrain as dt


def test_ends_of_binomials():
    found = dt.binomial(dt.tensor([0.0, 5.0, 5.0, math.nan]), dt.tensor([0.5, 0.0, 1.0, 0.5]))
    assert found[:3].tolist() == [0, 0, 5] and found[3].isnan().item()
    with pytest.raises(TypeError, match="count of"):
        dt.binomial(dt.tensor([3]), dt.tensor([0.5]))
    with pytest.raises(TypeError, match="same dtype"):
        dt.binomial(dt.tensor([3.0]), dt.tensor([0.5], dtype=dt.float64))
