"""Proofs of plans, held against all interleavings of small ones, one by one."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from disttrain.distributed.pipelining.actions import Action, Kind, Plan, plan_from_csv
from disttrain.distributed.pipelining.plans import SCHEDULES, known
from disttrain.distributed.pipelining.proof import partner, prove
from disttrain.errors import ConfigError


def all_ends(plan: Plan, waits: bool) -> set[tuple[int, ...]]:
    """How far the ranks come in every interleaving: the places in which nobody can go on. Written
    down from what ranks do, with nothing of the code under test. ``waits``: a send lasts until its
    receive was started."""
    seen, ends, row = set(), set(), [(0,) * plan.num_ranks]
    while row:
        at = row.pop()
        if at in seen:
            continue
        seen.add(at)
        done = {a for order, n in zip(plan.orders, at) for a in order[:n]}
        following = [
            (*at[:r], at[r] + 1, *at[r + 1 :])
            for r, order in enumerate(plan.orders)
            if at[r] < len(order) and possible(plan, order[at[r]], done, waits)
        ]
        row += following
        if not following:
            ends.add(at)
    return ends


def possible(plan: Plan, a: Action, done: set[Action], waits: bool) -> bool:
    s, m, last = a.stage, a.micro, plan.num_stages - 1

    def has(stage: int, *kinds: Kind) -> bool:
        return any(Action(stage, kind, m) in done for kind in kinds)

    def from_other(stage: int, receive: Kind, send: Kind, *kinds: Kind) -> bool:
        if plan.rank_of[stage] == plan.rank_of[s]:
            return has(stage, *kinds)
        return has(s, receive) and has(stage, send)

    if a.kind in (Kind.RECV_F, Kind.RECV_B):
        return True
    if a.kind is Kind.F:
        return not s or from_other(s - 1, Kind.RECV_F, Kind.SEND_F, Kind.F)
    if a.kind in (Kind.B, Kind.I):
        behind = s == last or from_other(s + 1, Kind.RECV_B, Kind.SEND_B, Kind.B, Kind.I)
        return has(s, Kind.F) and behind
    if a.kind is Kind.W:
        return has(s, Kind.I)
    ready = has(s, Kind.F) if a.kind is Kind.SEND_F else has(s, Kind.B, Kind.I)
    return ready and (not waits or partner(a) in done)


def some_plan(draw: random.Random) -> Plan:
    """A small plan, whose actions may have changed places."""
    name = draw.choice([*SCHEDULES])
    ranks = draw.choice((2, 2, 3)) if name != "DualPipeV" else 2
    stages = (SCHEDULES[name][0] or 2) * ranks
    micro = draw.choice((1, 2)) if name != "DualPipeV" else 4
    plan = known(name, ranks, stages, micro)
    orders = [list(order) for order in plan.orders]
    for _ in range(draw.choice((0, 0, 1, 1, 2, 4))):
        order = draw.choice(orders)
        i, j = draw.randrange(len(order)), draw.randrange(len(order))
        order[i], order[j] = order[j], order[i]
    return replace(plan, orders=tuple(map(tuple, orders)))


def test_verdicts_are_those_of_all_interleavings():
    """400 plans; what is proved, and what is refuted, agrees with enumeration."""
    draw, kinds = random.Random(7), []
    for _ in range(400):
        plan = some_plan(draw)
        whole = tuple(map(len, plan.orders))
        ends = all_ends(plan, waits=False)
        assert len(ends) == 1  # all interleavings come to one place
        verdict = prove(plan)
        assert verdict.holds == (ends == {whole}), verdict
        if verdict.holds:
            assert verdict.buffered == (all_ends(plan, waits=True) != {whole})
            assert verdict.held == tuple(map(most_held, plan.orders))
        else:
            assert verdict.kind == "deadlock" and verdict.trace and verdict.chart
            (end,) = ends
            for line in verdict.trace:  # who stands where it says
                rank, number = (int(w.rstrip(",")) for w in (line.split()[1], line.split()[6]))
                assert end[rank] == number - 1
        kinds.append((verdict.kind, verdict.buffered, len(verdict.trace)))
    assert {("proof", True), ("proof", False), ("deadlock", False)} <= {k[:2] for k in kinds}
    assert {1, 2} <= {k[2] for k in kinds}


def most_held(order: tuple[Action, ...]) -> int:
    steps = [(a.kind is Kind.F) - (a.kind in (Kind.B, Kind.W)) for a in order]
    return max(itertools.accumulate(steps))


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_is_proved(name):
    per_rank = SCHEDULES[name][0]
    tried = 0
    for ranks, micro in itertools.product(range(1, 6), (1, 2, 3, 5, 8, 12)):
        for chunks in [per_rank] if per_rank else [1, 2, 3]:
            try:
                plan = known(name, ranks, chunks * ranks, micro)
            except ConfigError as error:
                assert name == "DualPipeV" and "at least as many micro-batches" in str(error)
                continue
            verdict = prove(plan)
            assert verdict.holds, verdict
            assert verdict.counts["messages"] == 2 * micro * sum(
                a != b for a, b in itertools.pairwise(plan.rank_of)
            )
            tried += 1
    assert tried >= 8


@pytest.mark.parametrize(
    "name, bound",
    [
        ("GPipe", lambda ranks, micro, r: micro),
        ("1F1B", lambda ranks, micro, r: min(ranks - r, micro)),
        ("ZBVZeroBubble", lambda ranks, micro, r: min(2 * ranks, 2 * micro)),
        ("LoopedBFS", lambda ranks, micro, r: 2 * micro),
    ],
)
def test_the_memory_that_papers_promise(name, bound):
    for ranks, micro in itertools.product((2, 4), (1, 4, 9)):
        plan = known(name, ranks, (SCHEDULES[name][0] or 2) * ranks, micro)
        bounds = [bound(ranks, micro, r) for r in range(ranks)]
        verdict = prove(plan, bounds)
        assert verdict.holds, verdict
        less = prove(plan, [max(verdict.held) - 1] * ranks)
        assert less.kind == "memory" and "are allowed" in less.text
        done = less.trace[0].split(" has done ")[1].split()
        assert sum("F" in a for a in done) - sum("B" in a or "W" in a for a in done) == max(
            verdict.held
        )


@pytest.mark.parametrize(
    "csv, kind, said",
    [
        ("0F0,0B0\n1F0\n", "incomplete", "stage 1 has for the backward of micro-batch 0 nothing"),
        ("0F0,0F0,0B0\n", "incomplete", "0F0 stands there 2 times"),
        ("0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1B0,1SEND_B0\n", "messages", "has no 1RECV_F0 on rank 1"),
        ("0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0\n", "messages", "0RECV_B0 on rank 0 has no 1SEND_B0"),
        ("0F0,0B0,0SEND_B0\n", "messages", "goes beyond the 1 stages"),
        ("0B0,0F0\n", "deadlock", "what it does later"),
        ("0F0,0B0,0F1,0B1\n1F1,1F0,1B1,1B0\n", "deadlock", "2 ranks wait for each other"),
    ],
)
def test_counterexamples_say_what_is_wrong(csv, kind, said):
    verdict = prove(plan_from_csv(csv))
    assert verdict.kind == kind and said in str(verdict), verdict
    assert str(verdict).startswith("counterexample: ")


def test_the_circle_is_the_shortest_one():
    verdict = prove(plan_from_csv("0F0,0B0,0F1,0B1\n1F1,1F0,1B1,1B0\n"))
    assert verdict.trace == (
        "rank 0 is at its action 4, 0B0, which needs 1SEND_B0; that is action 8 of rank 1",
        "rank 1 is at its action 3, 1F1, which needs 0SEND_F1; that is action 7 of rank 0",
    )
    assert "rank 0 | F0" in verdict.chart


def test_data_for_others():
    found = prove(known("1F1B", 2, 2, 3)).as_json()
    assert found["holds"] and found["schedule"] == "1F1B" and found["ranks"] == 2
    assert found["micro_batches"] == 3 and found["held"] == (2, 1)
    with pytest.raises(ConfigError, match="needed are 2, or one"):
        prove(known("1F1B", 2, 2, 3), [1])
