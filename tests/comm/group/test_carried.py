"""What stands in for a transport and lets its calls carry digests."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import pytest

from disttrain.comm.calls.header import (
    SIZE,
    VALUES,
    Call,
    difference,
    differing_field,
    mismatch_text,
)
from disttrain.comm.calls.work import Work
from disttrain.comm.group.carried import Carried, Unexplained
from disttrain.errors import CollectiveMismatch, ValuesDiffer


class Ledger:
    def __init__(self, *digests):
        self.digests = list(digests)

    @property
    def pending(self):
        return bool(self.digests)

    def take(self):
        return SimpleNamespace(digest=self.digests.pop(0), told="lr=1")

    def explain(self, carried, number, error):
        return ValuesDiffer(f"operation {number}: {carried.digest}")


class Below:
    """A transport that notes calls, and fails as it is told."""

    timeout = 3.0

    def __init__(self, error=None, work=None):
        self.calls, self.error, self.work = [], error, work

    def barrier(self, call, *, async_op=False):
        self.calls.append(call)
        if self.error:
            raise self.error
        return self.work

    def all_reduce_each(self, calls, arrays, op):
        self.calls += calls
        return len(calls)

    def split(self, call, members, name, swap=None):
        self.calls.append(call)
        return swap

    close = barrier


CALL = Call("barrier", site="train.py:3 in main", common="world 1")
APART = mismatch_text("group world", 7, VALUES, {0: "barrier() at a", 1: "barrier() at b"})


def prints(*calls):
    return [(5).to_bytes(8, "little") + call.tail for call in calls]


def test_headers_say_what_they_carry():
    one, two = CALL.carrying(11, "lr=1"), CALL.carrying(12, "lr=2")
    assert len(one.tail) + 8 == SIZE and one.tail != CALL.tail
    assert one.text == "barrier() after same(lr=1) at train.py:3 in main"
    assert CALL.text == "barrier() at train.py:3 in main"
    assert difference(prints(one, CALL.carrying(11, "lr=1"))) == ""
    assert difference(prints(one, two)) == VALUES
    assert difference(prints(one, CALL)) == "use of same"
    other = Call("barrier", common="another group")
    assert difference(prints(CALL, other)) == "shape"
    assert difference(prints(one, Call("broadcast").carrying(11, ""))) == "op"


def test_texts_of_mismatches_name_their_field():
    assert differing_field(APART) == (7, VALUES)
    assert differing_field(mismatch_text("x", 2, "use of same", {0: "a"})) == (2, "use of same")
    assert differing_field("something else") == (0, "")


def test_the_next_call_carries_and_the_one_after_does_not():
    below = Below()
    carried = Carried(below, Ledger(11))
    carried.barrier(CALL)
    carried.barrier(CALL)
    assert [c.tail == CALL.tail for c in below.calls] == [False, True]


def test_it_is_the_transport_otherwise():
    below = Below()
    carried = Carried(below, Ledger())
    carried.timeout = 5.0
    assert below.timeout == 5.0 == carried.timeout
    with pytest.raises(AttributeError):
        _ = carried.nothing
    assert carried.split(CALL, [0], "name", "swap") == "swap"


def test_several_at_once_and_leaving():
    below = Below()
    carried = Carried(below, Ledger(1, 2, 3))
    assert carried.all_reduce_each([CALL, CALL], [], None) == 2
    carried.split(CALL, [0], "name")
    carried.close(CALL)
    carried.close(None)
    tails = [c and c.tail == CALL.tail for c in below.calls]
    assert tails == [False, True, False, False, None]


def test_an_error_is_explained_where_all_have_carried():
    carried = Carried(Below(CollectiveMismatch(APART)), Ledger(11))
    with pytest.raises(ValuesDiffer, match="operation 7: 11"):
        carried.barrier(CALL)
    later = mismatch_text("group world", 7, VALUES, {0: CALL.carrying(11, "lr=1").text})
    carried = Carried(Below(CollectiveMismatch(later)), Ledger(11))
    carried.all_reduce_each([CALL], [], None)
    with pytest.raises(ValuesDiffer, match="operation 7: 11"):
        carried.barrier(CALL)  # which tells of the call before
    with pytest.raises(CollectiveMismatch, match="values differs"):
        Carried(Below(CollectiveMismatch(APART)), Ledger()).barrier(CALL)  # nothing was carried
    other = mismatch_text("group world", 7, "op", {0: "a", 1: "b"})
    carried = Carried(Below(CollectiveMismatch(other)), Ledger(11))
    with pytest.raises(CollectiveMismatch, match="op differs"):
        carried.barrier(CALL)


def test_works_explain_when_they_are_waited_for():
    work = Work()
    carried = Carried(Below(work=work), Ledger(11))
    after = carried.barrier(CALL, async_op=True).then(lambda _: None)
    work._end(error=CollectiveMismatch(APART))
    for waited in (work, after):
        assert isinstance(waited.exception(), Unexplained)
        with pytest.raises(ValuesDiffer, match="operation 7"):
            waited.wait()
    with pytest.raises(ValuesDiffer, match="operation 7"):
        work.get_future().wait()
    assert type(pickle.loads(pickle.dumps(work.exception()))) is CollectiveMismatch
