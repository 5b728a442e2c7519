"""Sobol's points: balanced, in one order however they are drawn, scrambled by a seed."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import ConfigError, DTypeError, ShapeError
from disttrain.quasirandom import SobolEngine

FIRST = [[0, 0], [0.5, 0.5], [0.75, 0.25], [0.25, 0.75],
         [0.375, 0.375], [0.875, 0.875], [0.625, 0.125], [0.125, 0.625]]  # fmt: skip


def test_the_first_points():
    assert SobolEngine(2).draw(8).tolist() == FIRST


@pytest.mark.parametrize("scramble", [False, True])
def test_each_interval_of_a_power_of_two_has_one_point(scramble):
    points = SobolEngine(5, scramble, seed=3).draw(256, dtype=dt.float64).numpy()
    for column in points.T:
        assert sorted((column * 256).astype(int)) == list(range(256))


@pytest.mark.parametrize("scramble", [False, True])
def test_points_come_in_one_order(scramble):
    whole = SobolEngine(3, scramble, seed=5).draw(32)
    engine = SobolEngine(3, scramble, seed=5)
    parts = [engine.draw(n) for n in (1, 0, 4, 11)]
    engine.fast_forward(6)
    parts.append(engine.draw(10))
    got = np.concatenate([p.numpy() for p in parts])
    assert np.array_equal(got[:16], whole.numpy()[:16])
    assert np.array_equal(got[16:], whole.numpy()[22:32])
    assert engine.num_generated == 32
    assert np.array_equal(engine.reset().draw(32).numpy(), whole.numpy())


def test_a_seed_decides_the_scrambling():
    a, b, other = (SobolEngine(4, True, seed=s).draw(9).numpy() for s in (1, 1, 2))
    assert np.array_equal(a, b) and not np.array_equal(a, other)
    dt.manual_seed(4)
    first = SobolEngine(4, True).draw(9).numpy()
    assert not np.array_equal(first, SobolEngine(4, True).draw(9).numpy())
    dt.manual_seed(4)
    assert np.array_equal(first, SobolEngine(4, True).draw(9).numpy())


def test_types_and_out():
    engine, out = SobolEngine(2, True, seed=1), dt.empty(0)
    assert engine.draw(3, out=out) is out
    assert out.shape == (3, 2) and out.dtype is dt.float32
    assert engine.draw(2, dtype=dt.float64).dtype is dt.float64
    with pytest.raises(DTypeError):
        engine.draw(2, dtype=dt.float16)


def test_what_is_refused():
    for dimension in (0, 21202):
        with pytest.raises(ConfigError, match="21201"):
            SobolEngine(dimension)
    engine = SobolEngine(2)
    with pytest.raises(ShapeError, match="n=-1"):
        engine.draw(-1)
    engine.draw(3)
    with pytest.raises(ValueError, match="power of 2"):
        engine.draw_base2(2)
    engine.draw(1)
    assert engine.draw_base2(2).tolist() == FIRST[4:]
    engine.fast_forward(2**20)
    with pytest.raises(ConfigError, match="reset"):
        engine.draw(2**30)


def test_it_says_what_it_is():
    assert repr(SobolEngine(3, True, 7)) == "SobolEngine(dimension=3, scramble=True, seed=7)"
