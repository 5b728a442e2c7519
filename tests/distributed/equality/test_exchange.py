"""How ranks find what differs: by messages, also where some of them do not answer."""

from __future__ import annotations

import functools
import time

import numpy as np
import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain.comm.group.group import ProcessGroup
from disttrain.distributed.equality import exchange
from disttrain.distributed.equality.exchange import explain
from disttrain.distributed.equality.leaves import leaves
from disttrain.distributed.equality.ledger import entry, ledger_of
from disttrain.errors import CollectiveMismatch, PeerFailed, ValuesDiffer
from disttrain_launcher import launch
from support.groups import group_outcomes, run_group


def ledger(group: ProcessGroup):
    return ledger_of(group, functools.partial(explain, group))


def told(call):
    try:
        call()
    except ValuesDiffer as error:
        return str(error)
    return ""


def test_all_ranks_get_one_text_each_time():
    def body(group):
        found = []
        for number in range(5):
            ledger(group).add(entry(f"n{number}", leaves([number, group.rank == number % 3]), "x"))
            found.append(told(group.barrier))
        return found

    rows = run_group(3, body)
    assert rows[0] == rows[1] == rows[2]
    for number, text in enumerate(rows[0]):
        assert f"'n{number}'" in text and f"  rank {number % 3} has True from x" in text


def test_works_that_are_waited_for_at_other_places():
    def body(group):
        ledger(group).add(entry("a", leaves(group.rank), "x"))
        work = group.all_reduce(np.ones(3), async_op=True)
        later = [group.all_reduce(np.ones(2), async_op=True) for _ in range(group.rank)]
        early = [group.all_reduce(np.ones(2), async_op=True) for _ in range(2 - group.rank)]
        found = told(work.wait)
        for each in (*later, *early):
            each.wait()
        return found

    rows = run_group(3, body)
    assert rows[0] == rows[1] == rows[2] and "rank 2 has 2 from x; it differs by 2" in rows[0]


def test_who_does_not_answer_in_time_is_named(monkeypatch):
    monkeypatch.setattr(exchange, "_PATIENCE", 0.3)

    def body(group):
        ledger(group).add(entry("a", leaves(group.rank), "x"))
        work = group.all_reduce(np.ones(3), async_op=True)
        if group.rank == 1:
            time.sleep(1.5)
            return "asleep"
        return told(work.wait)

    first, second = run_group(2, body)
    assert second == "asleep"
    assert "Which value it is could not be found out" in first and "values differs" in first


@pytest.mark.parametrize("victim", [0, 2])
def test_a_rank_that_dies_meanwhile_ends_it_for_all(victim):
    def body(group):
        ledger(group).add(entry("a", leaves(group.rank), "x"))
        work = group.all_reduce(np.ones(3), async_op=True)
        if group.rank == victim:
            raise ValueError("no such layer")
        with pytest.raises(PeerFailed, match="no such layer"):
            work.wait()
        return True

    found = group_outcomes(3, body)
    assert [o.value for o in found if o.rank != victim] == [True, True]


def test_arguments_that_differ_where_values_are_alike_are_told_as_ever():
    def body(group):
        outs = [np.ones(2), np.ones(2)]
        sized = [np.ones(1 + group.rank), np.ones(3 - group.rank)]
        ledger(group).add(entry("a", leaves(1), "x"))
        with pytest.raises(CollectiveMismatch, match="values differs") as raised:
            group.reduce_scatter(np.ones(sized[group.rank].size), sized)
        group.all_gather(outs, np.ones(2))
        return type(raised.value).__name__

    assert set(run_group(2, body)) == {"CollectiveMismatch"}


def test_what_differs_at_the_end_is_told_to_all_before_any_joins_another_group():
    def body():
        dist.init_process_group()
        dist.same(dist.get_rank(), name="last")
        try:
            dist.destroy_process_group()
        except ValuesDiffer as error:
            found = str(error)
        dist.init_process_group()
        x = dt.ones(1)
        dist.all_reduce(x)
        dist.destroy_process_group()
        return found, x.item()

    for _ in range(3):
        for text, total in launch(body, 3):
            assert "same(last=1)" in text and total == 3.0
