"""Checks of what is given to a group."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.comm.group import arguments as check
from disttrain.errors import CollectiveMismatch, ConfigError, DTypeError, ShapeError

X = np.zeros((4, 3), np.float32)


WRONG = {
    "needed is float64": (DTypeError, lambda: check.same_dtype("gather", "out", X, np.dtype("f8"))),
    r"\[4, 3\] was given; needed is \[3": (
        ShapeError,
        lambda: check.fit("gather", "out", X, (3, 4)),
    ),
    "a list of 2 arrays": (ConfigError, lambda: check.per_rank("scatter", "ins", [X], 2)),
    "ins=ndarray was given": (ConfigError, lambda: check.per_rank("scatter", "ins", X, 2)),
    "0 <= src < 4": (ConfigError, lambda: check.member("broadcast", "src", 4, 4)),
    r"src=1\.0 was given": (ConfigError, lambda: check.member("broadcast", "src", 1.0, 4)),
    "different ranks": (ConfigError, lambda: check.members("new_group", "ranks", [0, 0], 4)),
    "tag=-1": (ConfigError, lambda: check.tag(-1)),
    "3 ranks divide": (ShapeError, lambda: check.pieces("a2a", "x", X, X.ravel(), None, 3)),
    "add up to its 4": (ShapeError, lambda: check.pieces("a2a", "x", X, X.ravel(), [1, 2], 2)),
}


@pytest.mark.parametrize("message", WRONG)
def test_messages_say_what_was_given_and_what_is_needed(message):
    error, call = WRONG[message]
    with pytest.raises(error, match=message):
        call()


def test_pieces_are_parts_of_the_row():
    row = X.ravel()
    found = check.pieces("all_to_all", "x", X, row, [3, 1], 2)
    assert [p.size for p in found] == [9, 3] and all(p.base is row or p.base is X for p in found)
    assert [p.size for p in check.pieces("all_to_all", "x", X, row, None, 2)] == [6, 6]


def test_inputs_that_lie_under_outputs_are_copied():
    a = np.arange(6.0)
    own = a[:3]
    assert check.apart([own], [a[3:]], (own, own))[0] is own
    assert check.apart([own], [own], (own, own))[0] is own  # in place
    copied = check.apart([own], [a[1:4]], (own, own))[0]
    assert copied is not own and copied.tolist() == own.tolist()


def test_lists_of_ranks_are_alike_among_their_members():
    assert not check.lists_differ("world", [[0, 1, -1]] * 3)
    assert check.lists_differ("world", [[0, 1, -1], [0, 1, -1], [2, -1, -1]])
    with pytest.raises(CollectiveMismatch, match="rank 0 gave the ranks"):
        check.lists_differ("world", [[0, 1, -1], [1, 2, -1], [2, -1, -1]])
