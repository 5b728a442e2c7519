"""Headers by arguments and calling line: built once a line, and who may call at once."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from disttrain.comm.calls import header, headers
from disttrain.comm.calls.headers import Calls
from disttrain.comm.calls.reduce_ops import ReduceOp, premul_sum
from disttrain.comm.calls.work import Work
from disttrain.errors import CommError


class Verbs:
    """What stands between a program and ``Calls``: a frame that counts as the package's."""

    def __init__(self, strict=False, epoch=0, name="world", rank=0):
        self._calls = Calls(name, epoch, rank, [4, 6], strict)

    def get(self, verb, array=None, **more):
        return self._calls.get(verb, array, **more)[0]


def fingerprint(call):
    return (1).to_bytes(8, "little") + call.tail


def fits(a, b):
    return header.difference([fingerprint(a), fingerprint(b)]) == ""


X = np.zeros((2, 3), np.float32)


def test_a_line_that_calls_again_gets_the_same_header():
    verbs = Verbs()
    calls = [verbs.get("all_reduce", X, op=ReduceOp.SUM) for _ in range(3)]
    assert calls[0] is calls[1] is calls[2]
    assert calls[0] is not verbs.get("all_reduce", X, op=ReduceOp.SUM)  # another line
    assert (
        "test_headers.py" in calls[0].text and "all_reduce(float32[2, 3], op=SUM)" in calls[0].text
    )


def test_other_arguments_are_other_headers():
    verbs = Verbs()
    same = {"verb": "all_reduce", "array": X, "op": ReduceOp.SUM}
    made = []
    for change in (
        {},
        {"array": X[:1]},
        {"array": X.astype(np.float64)},
        {"op": ReduceOp.MAX},
        {"verb": "reduce", "root": 1},
        {"sizes": (1, 2)},
        {"ragged": True},
    ):
        made.append(verbs.get(**{**same, **change}))
    assert len(set(map(id, made))) == len(made)
    for other in made[1:]:
        assert not fits(made[0], other), other.text


def test_equal_calls_fit_and_other_groups_do_not():
    a, b = (verbs.get("all_reduce", X, op=ReduceOp.SUM) for verbs in (Verbs(), Verbs(rank=1)))
    assert fits(a, b)
    for other in (Verbs(epoch=1), Verbs(name="half")):
        assert not fits(a, other.get("all_reduce", X, op=ReduceOp.SUM))
    flat = Verbs().get("all_reduce", X.reshape(-1), op=ReduceOp.SUM)
    assert fits(a, flat), "the shape is evidence only"
    lines = [Verbs().get("barrier") for _ in range(1)] + [Verbs().get("barrier")]
    assert fits(*lines)


def test_a_strict_group_compares_lines_and_shapes():
    strict, other = Verbs(strict=True), Verbs(strict=True, rank=1)
    both = [v.get("all_reduce", X, op=ReduceOp.SUM) for v in (strict, other)]
    assert fits(*both)
    elsewhere = other.get("all_reduce", X, op=ReduceOp.SUM)
    assert header.difference([fingerprint(both[0]), fingerprint(elsewhere)]) == "line"
    flat = [v.get("all_reduce", x, op=ReduceOp.SUM) for v, x in ((strict, X), (other, X.ravel()))]
    assert not fits(*flat)
    root = strict.get("broadcast", X, root=0)
    line = other.get("broadcast", X, root=0)
    assert fits(root, line), "a root may stand in a branch of its own"
    assert fits(strict.get("barrier"), other.get("barrier"))
    assert not fits(both[0], Verbs(rank=1).get("all_reduce", X, op=ReduceOp.SUM))


def test_roots_and_peers_are_told_by_their_global_numbers():
    verbs = Verbs()
    assert "root=6" in verbs.get("broadcast", X, root=1).text
    send = verbs.get("send", X, shown=(("dst", 1), ("tag", 2)))
    assert "dst=1, tag=2, group=world" in send.text and not send.counts
    assert verbs.get("recv", X, shown=(("src", None),)).op == "send"
    assert "destroy_process_group" in verbs.get("close").text
    shown = verbs.get("split", None, shown=((0, 1),)).text
    assert "(0, 1)" in shown


def test_collectives_are_counted_and_messages_are_not():
    verbs = Verbs()
    for _ in range(3):
        verbs.get("barrier")
    verbs.get("send", X, shown=(("dst", 1),))
    assert verbs._calls._count == 3
    prepared, begun = verbs._calls.get("barrier", None, begins=False)
    assert (verbs._calls._count, begun) == (3, 0)
    verbs._calls.begin(prepared)
    assert verbs._calls._count == 4


def test_ever_new_factors_take_no_memory():
    verbs = Verbs()
    for k in range(5):
        call = verbs.get("all_reduce", X, op=premul_sum(k + 0.5))
        assert str(k + 0.5) in call.text
    assert not verbs._calls._known


def test_what_is_known_does_not_grow_without_end(monkeypatch):
    monkeypatch.setattr(headers, "_MAX_CALLS", 4)
    verbs = Verbs()
    for n in range(20):
        verbs.get("all_gather", np.zeros(n, np.int8))
    assert 0 < len(verbs._calls._known) <= 6


def test_an_operator_that_is_none_is_refused():
    with pytest.raises(CommError.__mro__[1], match="ReduceOp"):
        Verbs().get("all_reduce", X, op=type("Odd", (), {"factor": None, "code": 0})())


def test_another_thread_takes_over_where_nobody_is_in_a_collective():
    verbs, got = Verbs(), []
    thread = threading.Thread(target=lambda: got.append(verbs.get("barrier")))
    thread.start()
    thread.join()
    assert len(got) == 1 and verbs._calls._thread != threading.get_ident()
    verbs.get("barrier")
    assert verbs._calls._thread == threading.get_ident()


class Box:
    """What the black box is told."""

    def __init__(self):
        self.told = []

    def end(self, begun):
        self.told.append(("end", begun))

    def fail(self, begun):
        self.told.append(("fail", begun))


def test_the_black_box_learns_how_a_work_has_ended():
    calls = Verbs()._calls
    calls.box = box = Box()
    assert calls.ended(1, None) is None
    good, bad = Work(), Work()
    assert calls.ended(2, good) is good and calls.ended(3, bad) is bad
    assert box.told == [("end", 1)]
    bad._end(error=ValueError())
    good._end("result")
    assert box.told == [("end", 1), ("fail", 3), ("end", 2)]
