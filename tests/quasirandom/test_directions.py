"""Direction numbers: of full rank, and Joe and Kuo's where the book has them."""

from __future__ import annotations

import numpy as np

from disttrain.quasirandom.directions import BITS, MOST, directions


def initial(row: int, count: int) -> list[int]:
    """The first numbers m_k of a dimension."""
    numbers = directions(row + 1)[row]
    return [int(numbers[k] >> (BITS - 1 - k)) for k in range(count)]


def test_the_first_dimensions_are_those_of_the_published_table():
    assert initial(0, 4) == [1, 1, 1, 1]
    assert initial(1, 5) == [1, 3, 5, 15, 17]  # by the polynomial x + 1
    assert initial(2, 2) == [1, 3]
    assert initial(5, 4) == [1, 1, 3, 3]
    assert initial(9, 5) == [1, 1, 7, 11, 19]


def test_every_dimension_has_numbers_of_full_rank():
    numbers = directions(MOST)
    assert numbers.shape == (MOST, BITS)
    highest_last = 1 << np.arange(BITS - 1, -1, -1)
    assert np.all(numbers & highest_last)  # m_k is odd
    assert np.all(numbers & (highest_last - 1) == 0)  # and has k bits
    assert len(np.unique(numbers, axis=0)) == MOST


def test_fewer_dimensions_are_the_first_of_more():
    many = directions(3000)
    for size in (1, 2, 3, 7, 38, 1111):
        assert np.array_equal(directions(size), many[:size])
