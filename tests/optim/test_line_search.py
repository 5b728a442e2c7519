"""The cubic of a line search: where it is least, and what is taken where it is not."""

from __future__ import annotations

import math

import pytest

from disttrain.optim.line_search import Point, cubic_minimum


def point(t: float, fn, slope) -> Point:
    return Point(t, fn(t), slope(t))


def parabola(t: float) -> Point:
    return point(t, lambda x: (x - 2) ** 2, lambda x: 2 * (x - 2))


def test_a_parabola_is_met_exactly():
    assert cubic_minimum(parabola(0), parabola(5), 0, 5) == pytest.approx(2)


def test_a_cubic_is_met_exactly_in_either_order():
    a, b = (point(t, lambda x: x**3 - 3 * x, lambda x: 3 * x * x - 3) for t in (0.0, 2.0))
    assert cubic_minimum(a, b, 0, 2) == pytest.approx(1)
    assert cubic_minimum(b, a, 0, 2) == pytest.approx(1)


def test_bounds_hold():
    assert cubic_minimum(parabola(0), parabola(5), 3, 5) == 3
    assert cubic_minimum(parabola(0), parabola(5), 0, 1) == 1


def test_no_minimum_gives_the_middle():
    rising = [point(t, lambda x: x, lambda x: 1.0) for t in (0.0, 1.0)]
    assert cubic_minimum(Point(0, 0, 1), Point(1, 0.5, 1), 0, 4) != math.inf
    assert cubic_minimum(Point(1, 3, 1), Point(1, 3, 1), 0, 4) == 2
    assert cubic_minimum(Point(0, math.nan, 1), rising[1], 0, 4) == 2
