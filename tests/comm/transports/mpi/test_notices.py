"""Who is stuck, by what ranks have said."""

from __future__ import annotations

import json
import random

from disttrain.comm.transports.mpi.notices import (
    CALL,
    MAIL,
    TAKE,
    Board,
    Edge,
    Notice,
    Wait,
    accusation,
    decode,
)


def waits(*edges, any=False, **fields):
    return Notice("waits", "in a call", (Wait(tuple(edges), any),), **fields)


def call(rank, number, group="g"):
    return Edge(rank, CALL, group, number)


def test_a_notice_crosses_as_json():
    notice = waits(call(1, 3), Edge(2, MAIL, "g", 0), any=True, calls={"g": 3}, mail={"g": {2: 5}})
    data = notice.encode()
    assert json.loads(data)["kind"] == "waits" and decode(data) == notice
    assert decode(Notice("free").encode()) == Notice("free")


def test_two_ranks_in_crossed_order_are_stuck():
    board = Board(0)
    mine = waits(call(1, 1, "a"), calls={"a": 1, "b": 0})
    assert board.stuck(mine) == set(), "nothing is known of rank 1"
    board.hear(1, waits(call(0, 1, "b"), calls={"a": 0, "b": 1}))
    assert board.stuck(mine) == {0, 1}
    text = accusation({**board.said, 0: mine}, {0, 1})
    assert "ranks 0, 1: in a call" in text
    board.hear(1, Notice("free"))
    assert board.stuck(mine) == set()


def test_who_waits_for_ranks_in_crossed_order_is_concerned_and_nobody_else():
    board = Board(0)
    mine = waits(call(1, 1, "a"), calls={"a": 1, "b": 0})
    board.hear(1, waits(call(0, 1, "b"), calls={"a": 0, "b": 1}))
    board.hear(2, waits(call(1, 5), calls={"g": 5}))
    for pair in ((3, 4), (4, 3)):  # these two are in a deadlock of their own
        board.hear(pair[0], waits(call(pair[1], 2, "c"), calls={"c": 1 + (pair[0] == 3)}))
    board.hear(4, waits(call(3, 1, "d"), calls={"c": 1, "d": 1}))
    board.hear(5, waits(call(6, 1), calls={"g": 1}))  # nothing is known of rank 6
    assert board.stuck(mine) == {0, 1}
    assert board.concerned(mine, {0, 1}) == {0, 1, 2}


def test_who_has_made_the_call_is_not_waited_for_in_vain():
    board = Board(0)
    mine = waits(call(1, 2), calls={"g": 2})
    board.hear(1, waits(call(0, 3), calls={"g": 3}))  # says so before rank 0 sees its call
    assert board.stuck(mine) == set()


def test_a_wait_for_whoever_comes_first_needs_all_to_be_stuck():
    board = Board(0)
    anyone = waits(Edge(1, MAIL, "g", 0), Edge(2, MAIL, "g", 0), any=True, calls={"g": 0})
    board.hear(1, waits(call(0, 1), calls={"g": 1}))
    assert board.stuck(anyone) == set(), "rank 2 may still send"
    board.hear(2, waits(call(0, 1), calls={"g": 1}, mail={"g": {0: 1}}))
    assert board.stuck(anyone) == set(), "rank 2 has sent, and it is on its way"
    board.hear(2, waits(call(0, 1), calls={"g": 1}))
    assert board.stuck(anyone) == {0, 1, 2}


def test_a_send_hangs_on_who_does_not_receive():
    board = Board(0)
    board.hear(1, waits(call(0, 1), calls={"g": 1}))
    assert board.stuck(waits(Edge(1, TAKE, "g", 1), calls={"g": 0})) == {0, 1}


def test_who_has_ended_or_left_the_group_does_nothing_more_there():
    board = Board(0)
    mine = waits(call(2, 4), calls={"g": 4})
    board.hear(2, Notice("ended", calls={"g": 3}))
    assert board.stuck(mine) == {0, 2} and board.left_at("g", 2) == 3
    assert "rank 2: has ended its program" in accusation({**board.said, 0: mine}, {0, 2})
    other = Board(0)
    other.hear(2, Notice("gone", group="g", calls={"g": 3}))
    assert other.stuck(mine) == {0} and other.stuck(waits(call(2, 3))) == set()


def test_only_those_are_named_on_whom_this_rank_hangs():
    board = Board(0)
    for a, b in ((1, 2), (2, 1), (3, 0)):
        board.hear(a, waits(call(b, 1, f"{a}{b}"), calls={}))
    assert board.stuck(waits(call(3, 1, "x"), calls={})) == {0, 3}


def test_chains_that_end_in_a_rank_which_computes_are_left_alone():
    """Random graphs of waits, of which one rank has said nothing: whoever reaches it may go on."""
    for seed in range(200):
        rng = random.Random(seed)
        size = rng.randint(3, 7)
        hangs = {r: rng.randrange(size) for r in range(size - 1)}
        board, mine = Board(0), waits(call(hangs[0], 1, "0"), calls={})
        for r in range(1, size - 1):
            board.hear(r, waits(call(hangs[r], 1, str(r)), calls={}))
        seen, r = [], 0
        while r != size - 1 and r not in seen:
            seen.append(r)
            r = hangs[r]
        assert board.stuck(mine) == (set() if r == size - 1 else set(seen)), (seed, hangs)


def test_the_first_failure_of_each_rank_is_kept():
    board = Board(0)
    board.hear(2, Notice("failed", "ValueError: a", detail="trace"))
    board.hear(2, Notice("failed", "b"))
    assert board.failures == {2: ("ValueError: a", "trace")}
    board.hear(1, Notice("accuses", "all are stuck"))
    assert board.verdict == "all are stuck"
