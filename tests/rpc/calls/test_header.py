"""The head of a message: depth, and what riders say."""

from __future__ import annotations

import pytest

from disttrain.errors import CommError
from disttrain.rpc.calls.header import CARRIED, carried_in, read_head, write_head


def test_there_and_back():
    said = [(0, b"one"), (2, b""), (CARRIED, bytes(300))]
    assert read_head(write_head(7, said), 3) == (7, said)
    assert read_head(b"", 3) == (0, []) and read_head(write_head(0, []), 0) == (0, [])


def test_what_is_carried_is_taken_out():
    said = [(0, b"a"), (CARRIED, b"refs")]
    assert carried_in(said) == b"refs" and said == [(0, b"a")] and carried_in(said) == b""


@pytest.mark.parametrize("cut", [1, 3, 6, 9])
def test_heads_that_are_cut_are_refused(cut):
    head = write_head(1, [(0, b"four")])
    with pytest.raises(CommError, match="head of"):
        read_head(head[:cut], 1)


def test_riders_that_are_not_here():
    with pytest.raises(CommError, match=r"another version|other parts"):
        read_head(write_head(0, [(2, b"x")]), 2)
