"""Shapes stay shapes when they are put together."""

from __future__ import annotations

import pytest

import disttrain as dt


def test_sums_of_sizes_are_sizes():
    size = dt.ones(2, 3).shape
    for found in (size + (4,), (4,) + size, size + size, size * 2, 2 * size, size[:1]):
        assert type(found) is dt.Size
    with pytest.raises(TypeError, match="'str'"):
        size + ("a",)
