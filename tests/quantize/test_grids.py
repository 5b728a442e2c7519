"""Grids: numbers to integers and back, and what is no grid."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.errors import ConfigError
from disttrain.quantize.grids import Grid
from disttrain.quantize.types import quint8


def test_one_grid_for_all():
    grid = Grid(0.5, 3)
    levels = grid.levels(dt.tensor([-2.0, 0.0, 1.25, 999.0]), quint8)
    assert levels.tolist() == [0, 3, 5, 255] and grid.numbers(levels).tolist() == [-1.5, 0, 1, 126]
    assert grid.levels(dt.tensor([-2.0, 1.0]), quint8, low=3).tolist() == [3, 5]


@pytest.mark.parametrize("axis", [0, -1])
def test_a_grid_for_each_channel(axis):
    grid = Grid(dt.tensor([1.0, 0.5]), dt.tensor([0, 1]), axis)
    x = dt.ones(2, 2)
    grid.check("here", quint8, (2, 2))
    found = grid.levels(x, quint8)
    assert (found if axis == 0 else found.T).tolist() == [[1, 1], [3, 3]]
    assert grid.numbers(found).equal(x)


@pytest.mark.parametrize(
    ("grid", "said"),
    [
        (Grid(0.0, 3), "scale=0.0 given; needed a positive number"),
        (Grid(1.0, 256), "zero_point=256 given; .* from 0 to 255"),
        (Grid(float("nan"), 0), "scale=nan"),
        (Grid(dt.ones(2), dt.zeros(2), 5), "axis=5 given for 2 dimensions"),
        (Grid(dt.ones(4), dt.zeros(3), 1), r"scales of shape \[4\] given; dimension 1 needs \[3\]"),
        (Grid(dt.ones(3), dt.zeros(2), 1), "zero_points of shape"),
    ],
)
def test_what_is_no_grid(grid, said):
    with pytest.raises(ConfigError, match=f"here: {said}"):
        grid.check("here", quint8, (2, 3))
