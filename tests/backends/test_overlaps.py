"""Arrays that share memory: groups of those that share elements."""

from __future__ import annotations

import numpy as np

from disttrain.backends.overlaps import _PAIRS, overlapping


def test_arrays_of_their_own():
    assert overlapping({"a": np.zeros(3), "b": np.zeros(3)}) == []


def test_views_of_one_memory():
    a = np.zeros(8)
    assert overlapping({"a": a[:5], "c": np.zeros(2), "b": a[4:]}) == [["a", "b"]]
    assert overlapping({"a": a[:4], "b": a[4:]}) == []


def test_columns_touch_and_share_nothing():
    m = np.zeros((4, 4))
    assert overlapping({i: m[:, i] for i in range(4)}) == []
    assert overlapping({"left": m[:, :3], "right": m[:, 2:]}) == [["left", "right"]]


def test_one_that_joins_two_makes_one_group():
    a = np.zeros(9)
    (found,) = overlapping({"x": a[:3], "y": a[6:], "all": a})
    assert sorted(found) == ["all", "x", "y"]


def test_empty_arrays_share_nothing():
    a = np.zeros(4)
    assert overlapping({"a": a, "b": a[2:2]}) == []


def test_large_groups_are_taken_as_shared():
    m = np.zeros((2, _PAIRS + 1))
    (found,) = overlapping({i: m[:, i] for i in range(_PAIRS + 1)})
    assert len(found) == _PAIRS + 1
