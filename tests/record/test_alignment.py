"""Which rows meet: with others between them, with other lengths, in another order."""

from __future__ import annotations

from disttrain.record import rows
from disttrain.record.alignment import from_data, pairs
from support.recordings import row, stream


def met(a, b, **how):
    found = pairs(a, b, lambda r: True, **how)
    return [(p.first[0].name if p.first else None, p.second[0].name if p.second else None)
            for p in found]  # fmt: skip


def test_one_more_in_the_middle_does_not_move_the_others():
    a, b = stream("add", "mul", "sum"), stream("add", "exp", "mul", "sum")
    want = [("add", "add"), (None, "exp"), ("mul", "mul"), ("sum", "sum")]
    assert met(a, b) == want
    assert met(b, a) == [(y, x) for x, y in want]


def test_the_same_name_meets_by_its_number():
    assert met(stream("add", "add"), stream("add")) == [("add", "add"), ("add", None)]


def test_only_steps_that_both_have():
    a = stream("add") + stream("mul", step=1)
    assert met(a, stream("add")) == [("add", "add")]
    assert met(a, stream("mul"), shift=1) == []


def test_a_resumed_run_begins_with_its_data():
    data = row(kind=rows.DATA, name="batch", at=1)
    later = [row(name="mul", at=2), *stream("sum", step=1)]
    resumed = [row(name="load"), data, *later]
    whole = [*stream("add"), *(row(**{**r._asdict(), "step": r.step + 1}) for r in (data, *later))]
    assert met(whole, resumed, shift=1) == [("batch", "batch"), ("mul", "mul"), ("sum", "sum")]
    assert from_data(stream("add"), 0) == []


def test_calls_meet_by_their_number_in_whatever_order_they_end():
    def call(n, at):
        return row(kind=rows.RECEIVED, name="all_reduce", at=at, hash=n,
                   about=f"op=SUM call {n} of group world (ranks 0,1)")  # fmt: skip

    a, b = [call(1, 0), call(2, 1)], [call(2, 0), call(1, 1)]
    assert [(p.first[0].hash, p.second[0].hash) for p in pairs(a, b, lambda r: True)] == [
        (1, 1), (2, 2)
    ]  # fmt: skip


def test_state_that_only_one_shows_is_left_out():
    a = [row(kind=rows.STATE, name="w")]
    assert met(a, stream("add")) == [(None, "add")]
