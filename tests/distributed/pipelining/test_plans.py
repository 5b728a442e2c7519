"""Schedules as data: every size is complete and comes to an end; bubbles and memory are counted."""

from __future__ import annotations

import pytest

from disttrain.distributed.pipelining import plans
from disttrain.distributed.pipelining.actions import (
    Action,
    Kind,
    Plan,
    plan_from_csv,
    plan_of,
)
from disttrain.distributed.pipelining.chart import draw
from disttrain.distributed.pipelining.check import run_on_paper
from disttrain.errors import ConfigError


def all_plans(ranks: int, micro: int) -> list[Plan]:
    found = [plans.gpipe(ranks, micro), plans.one_f_one_b(ranks, micro), plans.zbv(ranks, micro)]
    for chunks in (1, 2, 3):
        stages = ranks * chunks
        found += [plans.interleaved(ranks, stages, micro), plans.looped_bfs(ranks, stages, micro),
                  plans.interleaved_zero_bubble(ranks, stages, micro)]  # fmt: skip
    if micro >= 2 * ranks:
        found.append(plans.dual_pipe_v(ranks, micro))
    return found


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_every_size_comes_to_an_end(ranks: int) -> None:
    for micro in range(1, 11):
        for plan in all_plans(ranks, micro):
            timeline = run_on_paper(plan)
            work = sum(end - start for row in timeline.spans for _, start, end in row)
            assert work == 3 * plan.num_stages * micro
            run_on_paper(plan.forward_only())
            assert plan_from_csv(plan.to_csv()).orders == plan.orders


def test_gradients_are_accumulated_in_order() -> None:
    for plan in all_plans(3, 7):
        for order in plan.orders:
            for stage in range(plan.num_stages):
                done = [a.micro for a in order if a.stage == stage and a.kind in (Kind.B, Kind.W)]
                assert done == sorted(done)


@pytest.mark.parametrize(("ranks", "micro"), [(2, 4), (4, 8), (4, 16), (8, 32)])
def test_bubble_and_memory_are_those_of_the_papers(ranks: int, micro: int) -> None:
    gpipe, one = (
        run_on_paper(plans.gpipe(ranks, micro)),
        run_on_paper(plans.one_f_one_b(ranks, micro)),
    )
    assert gpipe.length == one.length == 3 * (micro + ranks - 1)
    assert gpipe.bubble == pytest.approx((ranks - 1) / (micro + ranks - 1))
    assert gpipe.held == (micro,) * ranks
    assert one.held == tuple(range(ranks, 0, -1))
    both = run_on_paper(plans.interleaved(ranks, 2 * ranks, micro))
    assert both.length == 6 * micro + 3 * (ranks - 1)  # half of 1F1B's bubble, in smaller stages
    zero = run_on_paper(plans.interleaved_zero_bubble(ranks, ranks, micro))
    assert 3 * micro < zero.length < one.length and max(zero.held) <= ranks
    vee_plan = run_on_paper(plans.zbv(ranks, micro))
    assert vee_plan.length <= 6 * micro + ranks and max(vee_plan.held) <= 2 * ranks


def test_the_chart() -> None:
    lines = draw(run_on_paper(plans.one_f_one_b(2, 2))).splitlines()
    assert lines[1:] == [
        "rank 0 | F0 F1 .  .  B0 -  .  B1 -",
        "rank 1 | .  F0 B0 -  F1 B1 -  .  .",
    ]
    assert "2 stages on 2 ranks, 2 micro-batches; 9 units" in lines[0]


def test_users_plans() -> None:
    text = "0F0,0F1,,0B0,0B1\n,1F0,1B0,1F1,1B1\n"
    plan = plan_from_csv(text)
    assert plan.rank_of == (0, 1) and plan.num_micro == 2
    assert Action(0, Kind.SEND_F, 0) in plan.orders[0]
    assert run_on_paper(plan).held == (2, 1)
    with pytest.raises(ConfigError, match=r"stage 0 computes on rank 0 and .0B0. on rank 1"):
        plan_of([["0F0"], ["0B0"]])
    with pytest.raises(ConfigError, match="no rank computes stage 0"):
        plan_of([["1F0"]])
    implied = plan_of([["0UNSHARD", "0F0", "0B0", "0REDUCE_GRAD", "0RESHARD"]])
    assert [str(a) for a in implied.orders[0]] == ["0F0", "0B0"]
    with pytest.raises(ConfigError, match="at least as many micro-batches as stages"):
        plans.dual_pipe_v(2, 3)
