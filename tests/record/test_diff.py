"""The first difference: its place, its inputs, what follows; and the ways to compare."""

from __future__ import annotations

import pytest

from disttrain.errors import ConfigError
from disttrain.record import rows
from disttrain.record.diff import diff, first_nan
from support.recordings import row, run, stream


def test_nothing_differs():
    found = diff(run(stream("add", "mul")), run(stream("add", "mul")))
    assert (found.first, found.compared, found.mode) == (None, 2, "same")


def test_the_first_of_all_ranks():
    good = [stream("add", "mul", "sum", rank=r) for r in range(2)]
    late = [row(name="add"), row(name="mul", at=1), row(name="sum", at=2, hash=5)]
    early = [row(name="add", rank=1), row(name="mul", at=1, rank=1, hash=7, inputs=(1,)),
             row(name="sum", at=2, rank=1)]  # fmt: skip
    found = diff(run(*good), run(late, early))
    assert found.first is not None
    assert (found.first.rank, found.first.row.name, found.first.how) == (1, "mul", "value")
    assert (found.different, found.compared) == (2, 6)
    assert [r.name for r in found.before] == ["add"]
    assert [(how, r.name) for how, r in found.following] == [("", "sum")]


def test_steps_come_before_places():
    a = run(stream("add") + stream("mul", step=1))
    b = run([row(name="add"), row(name="mul", step=1, hash=3)])
    first = diff(a, b).first
    assert first is not None and first.step == 1


def test_equal_inputs_are_counted():
    a, b = run([row(inputs=(1, 2, 3))]), run([row(hash=9, inputs=(1, 2, 4))])
    first = diff(a, b).first
    assert first is not None and first.inputs == (2, 3)


def test_what_only_one_has_is_a_difference():
    first = diff(run(stream("add", "mul")), run(stream("add"))).first
    assert first is not None and first.how == "only in A"


def test_the_level_of_the_coarser_counts():
    a = run([row(), row(kind=rows.MODULE, at=1)])
    b = run([row(kind=rows.MODULE)], level="modules")
    assert diff(a, b).compared == 1


def test_replicas_compare_what_all_have_alike():
    def rank(r, rate):
        return [row(rank=r, hash=r), row(kind=rows.SETTINGS, name="SGD", rank=r, at=1, hash=rate)]

    assert diff(run(rank(0, 1), rank(1, 1))).first is None
    found = diff(run(rank(0, 1), rank(1, 2)))
    assert found.first is not None and found.first.rank == 1
    assert diff(run(rank(0, 1), rank(1, 1)), everything=True).first is not None
    with pytest.raises(ConfigError, match="has one rank"):
        diff(run(stream("add")))


def test_the_first_nan_is_not_where_it_was_received():
    own = [row(name="log", rank=1, at=5, nans=1)]
    got = [row(kind=rows.RECEIVED, name="all_reduce", at=2, nans=1,
               about="call 1 of group world (ranks 0,1)")]  # fmt: skip
    found = first_nan(run(got, own))
    assert found is not None and found.name == "log"
    said = diff(run(got, own))
    assert said.first is not None and (said.first.how, said.first.rank) == ("nan", 1)


def test_the_mode_fits_what_is_given():
    two = run(stream("add"), stream("add", rank=1))
    assert diff(two, two).mode == "same"
    assert diff(two, run(stream("add"))).mode == "whole"
    some = run(stream("add", rank=1), world=2)
    some.streams = {1: some.streams[0]}
    assert diff(two, some).mode == "same"
    a, b = (run(stream("add", rank=r), world=2) for r in range(2))
    a.folder = b.folder = "/here"
    b.streams = {1: b.streams[0], 2: stream("add", rank=2)}
    assert diff(a, b).mode == "replicas"


def test_a_wrong_mode_is_refused():
    with pytest.raises(ConfigError, match="one of same, replicas, whole"):
        diff(run(stream("add")), run(stream("add")), mode="some")
