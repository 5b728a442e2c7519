"""The text of what differs."""

from __future__ import annotations

import pytest

from disttrain.distributed.equality.report import NOTHING, first_apart, groups_of, text_of


@pytest.mark.parametrize(
    "rows, index",
    [
        ({0: [1, 2], 1: [1, 2]}, None),
        ({0: [1, 2], 1: [1, 3]}, 1),
        ({0: [1, 2], 1: [1]}, 1),
        ({0: [], 1: [1]}, 0),
        ({0: [], 1: []}, None),
        ({0: [1, 2, 3], 1: [1, 2, 3], 2: [0, 2, 3]}, 0),
    ],
)
def test_the_first_place_that_differs(rows, index):
    assert first_apart(rows) == index


def test_the_most_frequent_value_comes_first():
    assert groups_of({0: 5, 1: 7, 2: 7, 3: 9}) == [[1, 2], [0], [3]]
    assert groups_of({0: 5, 1: 7}) == [[0], [1]]


def row(hash_, told, **more):
    return {"hash": hash_, "told": told, "site": "a.py:1", "number": None, "stats": None} | more


def test_ranks_are_told_by_what_they_have():
    told = {
        0: row(1, "0.1", number=0.1),
        1: row(2, "0.2", number=0.2, site="b.py:2"),
        2: row(1, "0.1", number=0.1, site="c.py:3"),
        3: row(3, NOTHING, site="d.py:4"),
    }
    lines = text_of("group world", "barrier() at x.py:9", 1, 3, "lr", "['a']", told).splitlines()
    assert lines[0] == (
        "group world: values that must be equal on all ranks differ, as barrier() at x.py:9 has "
        "found:"
    )
    assert lines[1].endswith("value 2 of 3 since the last call that was compared, 'lr', in ['a']:")
    assert lines[2:5] == [
        "  ranks 0, 2 have 0.1 from a.py:1 and c.py:3",
        "  rank 1 has 0.2 from b.py:2; it differs by 0.1",
        "  rank 3 has nothing more after d.py:4",
    ]


def test_arrays_are_told_by_their_measures():
    stats = {"shape": "f[3]", "sketch": 1.0, "low": 0.0, "high": 1.0, "squares": 4.0, "nans": 0}
    told = {
        0: row(1, "f[3]", stats=stats),
        1: row(2, "f[3]", stats=stats | {"sketch": 1.5, "squares": 9.0, "nans": 2}),
        2: row(3, "f[4]", stats=stats | {"shape": "f[4]"}),
    }
    text = text_of("g", "c", 0, 1, "", "", told)
    assert "it differs by about 0.5 (norm); its elements are 0 to 1 with norm 3, against" in text
    assert "2 nans against 0" in text
    assert text.splitlines()[4] == "  rank 2 has f[4] from a.py:1"


def test_values_that_are_not_finite_are_not_subtracted():
    told = {0: row(1, "inf", number=float("inf")), 1: row(2, "nan", number=float("nan"))}
    assert "differs by" not in text_of("g", "c", 0, 1, "", "", told)
