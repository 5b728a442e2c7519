"""Elements several times in a row."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import ShapeError

X = dt.arange(12.0).reshape(3, 4)


@pytest.mark.parametrize("times", [0, 1, 3])
def test_a_number_of_times(times):
    assert dt.repeat_interleave(dt.tensor([2, 0]), times).tolist() == [2] * times + [0] * times
    for dim in (0, 1, -1):
        wanted = np.repeat(X.numpy(), times, dim)
        assert X.repeat_interleave(times, dim).tolist() == wanted.tolist()


def test_a_number_for_each():
    assert X.repeat_interleave(dt.tensor([0, 2, 1]), 0)[:, 0].tolist() == [4.0, 4.0, 8.0]
    assert X.repeat_interleave(dt.tensor([2]), 1).tolist() == X.repeat_interleave(2, 1).tolist()
    assert dt.repeat_interleave(dt.tensor([1, 0, 2])).tolist() == [0, 2, 2]


def test_wrong_numbers_are_refused():
    with pytest.raises(ShapeError, match="-1 given; repeats cannot be negative"):
        X.repeat_interleave(-1, 0)
    with pytest.raises(ShapeError, match="2 repeats given for dimension 0 of size 3"):
        X.repeat_interleave(dt.tensor([1, 2]), 0)


def test_sizes_that_change():
    program = dt.export(lambda x: x.repeat_interleave(2, 0), X, dynamic=[{0: "n"}])
    assert program(X[:2]).shape == (4, 4)
    assert program(dt.ones(5, 4)).shape == (10, 4)
