"""Where the members of a group meet: in order, with headers that fit, or told who is not there."""

import numpy as np

from disttrain.comm.calls.header import Call
from disttrain.comm.transports.sim.exchange import Part
from disttrain.comm.transports.sim.matching import Matcher

F4, I8 = np.dtype("f4"), np.dtype("i8")


class Group:
    """A matcher, what it found ready, and the errors of members."""

    def __init__(self, *ranks):
        self.ready, self.errors = [], {}
        self.matcher = Matcher("g", ranks, self._met)

    def _met(self, matcher, number, parts):
        self.ready.append((number, len(parts)))

    def bring(self, member, verb="all_reduce", dtype=F4, line="a.py:1"):
        """``member`` makes its next call."""
        number = self.matcher.enter(member)
        call = Call(verb, args="x", site=line, dtype=dtype, numel=1)

        def ended(error):
            self.errors[member] = str(error)

        self.matcher.bring(member, number, Part(call, verb, ended=ended))
        return number


def test_an_operation_runs_when_the_last_has_come():
    group = Group(4, 5, 6)
    group.bring(0)
    group.bring(2)
    assert group.ready == [] and group.matcher.missing(1) == [5]
    group.bring(1)
    assert group.ready == [(1, 3)] and not group.errors


def test_operations_run_in_their_order():
    group = Group(0, 1)
    assert [group.bring(0) for _ in range(3)] == [1, 2, 3]
    for k in range(3):
        assert len(group.ready) == k
        group.bring(1)
    assert [number for number, _ in group.ready] == [1, 2, 3]


def test_calls_that_differ_are_told_to_all():
    group = Group(4, 5)
    group.bring(0)
    group.bring(1, dtype=I8)
    assert group.ready == []
    assert group.errors[0] == group.errors[1]
    assert "group g" in group.errors[0] and "dtype differs" in group.errors[0]


def test_lines_apart_before_a_mismatch_are_told():
    group = Group(0, 1)
    group.bring(0, line="a.py:1")
    group.bring(1, line="a.py:9")
    group.bring(0)
    group.bring(1, verb="broadcast")
    said = group.errors[1]
    assert "op differs" in said
    assert "operation 1 came from different lines" in said and "a.py:9" in said


def test_who_has_left_is_not_waited_for():
    group = Group(4, 5)
    group.bring(0)
    assert group.matcher.missing(1) == [5]
    group.matcher.leave(1, 0)
    assert group.matcher.missing(1) == []
    assert "left the group after 0 operations" in group.errors[0]
    assert not group.matcher.empty
    group.matcher.leave(0, 1)
    group.matcher.leave(0, 7)  # the first one counts
    assert group.matcher.empty and group.matcher.left == [1, 0]


def test_a_close_that_comes_when_others_have_gone():
    group = Group(0, 1)
    group.matcher.leave(1, 0)
    group.bring(0, verb="close")
    assert group.ready == [(1, 1)] and not group.errors


def test_who_comes_too_late():
    group = Group(0, 1)
    number = group.bring(0)
    group.matcher.take_back(0, number)
    group.matcher.leave(0, 0)
    group.bring(1)
    assert "left the group after 0 operations" in group.errors[1]
    late = Call("all_reduce", args="late", site="b.py:1", dtype=F4, numel=1)
    errors = []
    group.matcher.bring(0, 1, Part(late, "all_reduce", ended=errors.append))
    assert "number of calls differs" in str(errors[0]) and "late" in str(errors[0])


def test_numbers_of_calls_at_the_end():
    group = Group(0, 1)
    group.bring(0)
    group.bring(1)
    assert group.matcher.counts_differ(0) is None
    group.matcher.leave(0, 1)
    assert group.matcher.counts_differ(1) is None
    group.matcher.enter(1)
    assert "number of calls differs" in str(group.matcher.counts_differ(1))


def test_a_wait_in_words():
    group = Group(4, 5, 6)
    group.bring(0)
    said = group.matcher.waited_for("all_reduce(x)", 1)
    assert said == "all_reduce(x) (operation 1 of group g); ranks 5, 6 have not arrived"
    group.bring(1)
    assert group.matcher.waited_for("x", 1).endswith("rank 6 has not arrived")
