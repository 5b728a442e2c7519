"""Questions are asked before what they do not depend on, and not before what they do."""

from __future__ import annotations

import re

import disttrain as dt
from disttrain.compile.questions import question


def order(run) -> str:
    """What the only graph does: w(rites), a(sks), or computes."""
    (graph,) = run.graphs
    parts = ((ins.prim.mutates, ins.prim is question) for ins in graph.instructions)
    return "".join("w" if writes else "a" if asks else "." for writes, asks in parts)


def test_a_question_goes_before_writes_that_it_does_not_need():
    seen = dt.zeros(3)

    def step(x):
        y = x * 2
        seen.add_(y)
        return y if y.sum() > 0 else x

    run = dt.compile(step)
    run(dt.ones(3))
    assert re.fullmatch(r"\.+a\.*w", order(run))
    assert not run.graphs[0].program.trial.slots


def test_a_question_stays_behind_writes_to_what_it_reads():
    seen = dt.zeros(3)

    def step(x):
        seen.add_(x)
        y = seen.sum()
        return x if y > 0 else x * 2

    run = dt.compile(step)
    run(dt.ones(3))
    assert re.fullmatch(r"\.*w\.+a", order(run))
    assert len(run.graphs[0].program.trial.slots) == 1


def test_questions_stay_in_their_order():
    def step(x):
        if (x.exp() + 1).sum() > 3 and x.sum() > 0:
            return x
        return -x

    run = dt.compile(step)
    for v in (1.0, -0.01, -9.0, 1.0, -9.0):
        assert run(dt.full((2,), v)).tolist() == step(dt.full((2,), v)).tolist()
    assert len(run.graphs) == 3
