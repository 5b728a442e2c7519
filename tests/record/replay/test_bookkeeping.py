"""What workers tell each other of references has no turn in a replay, and is answered at once."""

from __future__ import annotations

from types import SimpleNamespace

from disttrain.record.replay.bookkeeping import Bookkeeping, is_bookkeeping
from disttrain.rpc.calls.kinds import RREFS
from disttrain.rpc.messages.contract.message import Message


def frames(*metas):
    return [SimpleNamespace(meta=meta, at=i) for i, meta in enumerate(metas)]


def test_requests_of_references_and_their_answers_stand_aside():
    log = frames(
        {"k": "call", "key": f"request 1 {RREFS} 1", "call": 7},
        {"k": "call", "key": "request 1 2 1", "call": 8},
        {"k": "in", "peer": 1, "call": 7, "answers": True},
        {"k": "in", "peer": 1, "call": 8, "answers": True},
        {"k": "in", "peer": 1, "call": 7, "answers": False},
        {"k": "call", "key": f"request 1 {RREFS} 1", "call": 9},
        {"k": "in", "peer": 1, "call": 9, "answers": True},
        {"k": "drawn", "key": "a name of two words"},
    )
    found = Bookkeeping(log)
    assert found.numbers == {0, 2, 5, 6}
    assert [found.answer(1) for _ in range(3)] == [log[2], log[6], log[6]]
    assert found.answer(0) is None


def test_only_requests_that_are_answered_are_meant():
    assert is_bookkeeping(Message(RREFS, 3))
    assert not is_bookkeeping(Message(RREFS, 3, answers=True))
    assert not is_bookkeeping(Message(RREFS, 0)) and not is_bookkeeping(Message(2, 3))
