"""What people are told of a job that hangs: a line for each rank, of many those first that nobody
else tells of."""

from __future__ import annotations

from types import SimpleNamespace

from disttrain.watch import summary
from disttrain.watch.reading import UNDER_WAY, Operation
from disttrain.watch.waiting import COMPUTES, WAITS, Standing


def stands(monkeypatch, told):
    monkeypatch.setattr(summary, "standings", lambda ranks, now: told)
    ranks = [SimpleNamespace(rank=r, words=SimpleNamespace(step=7 * (r == 0))) for r in range(40)]
    return summary.stands(ranks, 0)


def operation(seq):
    return Operation(1, 0, 0, seq, "barrier", 0, "", "world", -1, "f() at a:1", "", UNDER_WAY)


def test_each_rank_is_told_with_its_operation(monkeypatch):
    told = [
        Standing(0, WAITS, 3.0, operation(12), (1,)),
        Standing(1, COMPUTES, 3.0, None),
        Standing(2, WAITS, 3.0, operation(0)),
    ]
    assert stands(monkeypatch, told) == [
        "rank 0, step 7: waits 3.0 s for rank 1 in f() at a:1 (operation 12 of group world)",
        "rank 1: computes",
        "rank 2: waits 3.0 s in f() at a:1",
    ]


def test_of_many_those_who_do_not_wait_are_never_left_out(monkeypatch):
    told = [Standing(r, WAITS, 3.0, operation(1), (39,)) for r in range(39)]
    lines = stands(monkeypatch, [*told, Standing(39, COMPUTES, 9.0, None)])
    assert len(lines) == 17 and lines[-2:] == ["rank 39: computes", "24 more wait"]
