"""A log as a replay goes through it."""

from __future__ import annotations

import threading

import pytest

from disttrain.record.log.frames import Log, LogWriter
from disttrain.record.replay.session import ReplayEnds, Session
from disttrain.record.replay.stops import Stops

pytestmark = pytest.mark.simulated


@pytest.fixture
def opened(tmp_path):
    def session(*metas, whole: bool = True) -> Session:
        writer = LogWriter(str(tmp_path / "log"), b"k")
        for meta in ({"k": "process"}, *metas, *([{"k": "exit"}] if whole else ())):
            writer.put(meta)
        writer.close()
        made = Session(Log(str(tmp_path / "log"), b"k"), Stops(), lambda line: None)
        return made

    return session


def call(key: str, verb: str = "all_reduce", main: bool = True, **more) -> dict:
    return {"k": "call", "key": key, "verb": verb, "main": main, "text": f"{verb}() at a.py:1",
            **more}  # fmt: skip


def end(of: int, **more) -> dict:
    return {"k": "end", "of": of, "late": False, **more}


def test_calls_come_in_order(opened):
    session = opened(call("world"), end(1), call("world", "barrier"), end(3))
    assert session.end(session.call("world", "all_reduce")).at == 2
    assert session.end(session.call("world", "barrier")).at == 4
    assert session.left() == "" and session.difference == ""


def test_another_verb_ends_it_and_says_both(opened):
    session = opened(call("world"), end(1))
    with pytest.raises(ReplayEnds):
        session.call("world", "broadcast", "broadcast() at b.py:2")
    assert "b.py:2" in session.difference and "a.py:1" in session.difference


def test_another_group_is_not_waited_for(opened):
    session = opened(call("one"), end(1), call("two"), end(3))
    with pytest.raises(ReplayEnds):
        session.call("two", "all_reduce", "all_reduce() at b.py:2")
    assert "recorded is all_reduce() at a.py:1" in session.difference


def test_other_values_are_said_and_it_goes_on(opened):
    session = opened(call("world", given="1"), end(1))
    assert session.call("world", "all_reduce", given="2") == 1
    assert "what the rank gives" in session.difference and session.differences == 1


@pytest.mark.parametrize("whole", [True, False])
def test_where_the_recording_ends(opened, whole):
    session = opened(call("world"), end(1), whole=whole)
    session.call("world", "all_reduce")
    with pytest.raises(ReplayEnds):
        session.call("world", "all_reduce")
    assert bool(session.difference) == whole and bool(session.ended) != whole


def test_a_call_without_an_end_was_the_last(opened):
    session = opened(call("world"), whole=False)
    with pytest.raises(ReplayEnds):
        session.end(session.call("world", "all_reduce"))
    assert "the rank was killed" in session.ended and not session.difference


def test_works_end_before_what_came_after_their_end(opened):
    session = opened(call("a"), call("b"), end(1, late=True), call("c"), end(2, late=True))
    seen: list[str] = []
    works = {
        k: session.pend(session.call(k, "all_reduce"), lambda k=k: seen.append(k)) for k in "ab"
    }
    assert seen == []
    session.call("c", "all_reduce")
    assert seen == ["a"]
    session.settle(works["b"])
    assert seen == ["a", "b"]


def test_threads_take_their_turns(opened):
    session = opened(call("t", main=False), end(1), call("m"), end(3))
    order: list[str] = []

    def body() -> None:
        session.call("t", "all_reduce", chosen=lambda n: order.append("t"))

    thread = threading.Timer(0.2, body)
    thread.start()
    session.call("m", "all_reduce", chosen=lambda n: order.append("m"))
    thread.join()
    assert order == ["t", "m"]


def test_numbers_are_drawn_again(opened):
    session = opened({"k": "drawn", "key": "seed x", "value": 7})
    assert [session.drawn("seed x", 1), session.drawn("seed x", 2)] == [7, 2]
