"""Which rank gets which terminal."""

from __future__ import annotations

from disttrain_launcher.debugging.sessions import (
    Seat,
    Session,
    assign,
    from_afar,
    invitation,
    told,
)


def session(rank: int, what: str = "breakpoint") -> Session:
    return Session(rank, 100 + rank, what, "t.py:3 in f", 60.0, 5.0)


def test_first_come_first_served() -> None:
    one, two, own, other = session(1), session(2), Seat(own=True), Seat(rank=2)
    assert assign([one, two], [own]) == [(one, own)]
    assert assign([one, two], [own]) == []  # there is no other one
    assert assign([one, two], [own, other]) == [(two, other)]
    assert (one.seat, own.session, two.seat) == (own, one, other)


def test_a_seat_for_one_rank_goes_before_one_for_any() -> None:
    one, own, other = session(1), Seat(own=True), Seat(rank=1)
    assert assign([one], [own, other]) == [(one, other)]
    assert own.session is None


def test_who_does_not_get_one() -> None:
    one = session(1)
    left = Seat(left={101})
    assert assign([one], [Seat(rank=3), Seat(willing=False), left]) == []
    assert assign([session(2)], [left])[0][1] is left


def test_what_people_are_told() -> None:
    one = session(1)
    assert one.until == 65.0
    assert told(one) == "rank 1 (pid 101) is in the debugger at t.py:3 in f"
    assert "has failed, and is in the debugger" in told(session(1, "post-mortem"))
    assert "was stopped at" in told(session(1, "disttrain pdb"))
    assert "`disttrain attach my-job 1`" in invitation(one, "my-job")
    assert "fails after 60 s" in invitation(one, "my-job")
    assert "(there: `disttrain attach my-job 1`)" in from_afar(one, "my-job")
