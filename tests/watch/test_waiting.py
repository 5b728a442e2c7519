"""Who waits for whom, and who comes late: on made-up black boxes."""

from __future__ import annotations

import pytest

from disttrain.watch.reading import ENDED, UNDER_WAY, Operation, Rank, Words
from disttrain.watch.waiting import lateness, missing, names, standings

SECOND = 10**9
WORLD = {"world": (0, 1, 2)}


def op(seq: int, begun: float, ended: float = 0.0, number: int = 1, peer: int = -1) -> Operation:
    state = ENDED if ended else UNDER_WAY
    return Operation(
        number, int(begun * SECOND), int(ended * SECOND), seq, "all_reduce", 8, "float32",
        "world", peer, "all_reduce(8) at a.py:3", "", state,
    )  # fmt: skip


def rank(number: int, *operations: Operation, said: str = "", **words: int) -> Rank:
    blank = dict.fromkeys(Words.__dataclass_fields__, 0) | {"pid": 1}
    return Rank(number, Words(**(blank | words)), said, WORLD, list(operations))


def test_ranks_that_have_not_come_are_named():
    waits = rank(0, op(2, 5), waits_since=6 * SECOND)
    come = rank(1, op(2, 5), waits_since=6 * SECOND)
    computes = rank(2, op(1, 1, 2))
    found = standings([waits, come, computes], 9 * SECOND)
    assert [s.state for s in found] == ["waits", "waits", "computes"]
    assert [s.waits_for for s in found] == [(2,), (2,), ()]
    assert found[0].text == "waits 3.0 s for rank 2 in all_reduce(8) at a.py:3"
    assert found[2].text == "computes 7.0 s since all_reduce(8) at a.py:3"


def test_of_a_rank_that_did_nothing_for_long_nothing_is_known():
    """Its box goes back to operation 5: what came before may have been a collective."""
    here = rank(0, op(2, 5))
    silent = rank(1, op(0, 5, 6, number=5, peer=0))
    arrived = {0: {"world": 2}, 1: {"world": 1 << 62}}
    assert missing(here.operations[0], here, arrived) == ()
    found = standings([rank(0, op(2, 5), waits_since=SECOND), silent], 9 * SECOND)
    assert found[0].waits_for == ()


def test_a_message_waits_for_its_other_end():
    assert missing(op(0, 1, peer=2), rank(0), {}) == (2,)
    assert missing(op(0, 1), rank(0), {}) == ()


def test_the_beginning_and_the_end():
    found = standings([rank(0, pid=0), rank(1, ended=1, ended_at=SECOND)], 3 * SECOND)
    assert [(s.state, s.seconds) for s in found] == [("starts", 0.0), ("ended", 2.0)]


def test_what_only_the_rank_knows_is_shown():
    said = "waits in send for rank 9"
    (found,) = standings([rank(0, op(0, 1), said=said, waits_since=SECOND)], 2 * SECOND)
    assert found.text == "waits 1.0 s in send for rank 9"


def test_lateness_is_behind_the_first_where_all_have_come():
    ranks = [
        rank(0, op(1, 1.0, 2), op(2, 3.0, 4)),
        rank(1, op(1, 1.5, 2), op(2, 3.1, 4)),
        rank(2, op(1, 1.0, 2)),
    ]
    assert lateness(ranks) == pytest.approx({0: 0.0, 1: 500.0, 2: 0.0})


def test_long_lists_are_cut():
    assert names([3]) == "rank 3" and names([0, 2]) == "ranks 0, 2"
    assert names(range(9)) == "ranks 0, 1, 2, 3, 4, 5, 6, 7, ..."
