"""Averages over growing groups: which group at which step."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import nn
from disttrain.distributed.algorithms.model_averaging.hierarchical_model_averager import (
    HierarchicalModelAverager,
)
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated


def drift(averager, steps: int) -> list[float]:
    """The parameter after every step."""
    p = nn.Parameter(dt.zeros(3).double())
    out = []
    for _ in range(steps):
        p.grad = dt.ones(3).double()
        p.data.add_(float(dist.get_rank() + 1))
        averager.average_parameters([p])
        out.append(p[0].item())
    return out


def test_a_hierarchy_averages_over_larger_groups_more_rarely() -> None:
    results = on_ranks(lambda: drift(HierarchicalModelAverager({2: 2, 4: 4}, 1), 9), 4)
    here = [0.0] * 4
    for step in range(9):
        here = [v + r + 1 for r, v in enumerate(here)]
        if step and step % 4 == 0:
            here = [sum(here) / 4] * 4
        elif step and step % 2 == 0:
            here = [sum(here[:2]) / 2] * 2 + [sum(here[2:]) / 2] * 2
        assert [r[step] for r in results] == pytest.approx(here)


@pytest.mark.parametrize(
    ("periods", "sizes"),
    [
        ({2: 2, 4: 4}, [4, None, 2, None, 4, None, 2, None, 4]),
        ({3: 2, 6: 4}, [4, None, None, 2, None, None, 4, None, None]),
        ({2: 1, 3: 2, 4: 4}, [4, None, 1, 2, 4, None, 2, None, 4]),  # the longest counts
        ({4: 4}, [4, None, None, None, 4, None, None, None, 4]),
    ],
    ids=str,
)
def test_the_longest_period_of_a_step_chooses_the_group(periods, sizes) -> None:
    def body() -> list:
        averager = HierarchicalModelAverager(periods)
        found = []
        for step in range(len(sizes)):
            averager.step = step
            group = averager._find_process_group()
            found.append(group and group.size)
        return found

    assert on_ranks(body, 4) == [sizes] * 4


def test_neighbours_make_groups_and_the_last_one_is_the_whole() -> None:
    def body() -> tuple:
        averager = HierarchicalModelAverager({2: 2, 4: 4})
        small, whole = averager.period_process_group_dict.values()
        assert whole is averager.process_group
        return dist.get_process_group_ranks(small)

    assert on_ranks(body, 4) == [[0, 1], [0, 1], [2, 3], [2, 3]]


def test_steps_are_counted_also_while_nothing_is_averaged() -> None:
    def body() -> tuple:
        averager = HierarchicalModelAverager({2: 2}, warmup_steps=3)
        values = drift(averager, 5)
        return values, averager.step

    found = on_ranks(body)
    assert found == [([1.0, 2.0, 3.0, 4.0, 7.5], 5), ([2.0, 4.0, 6.0, 8.0, 7.5], 5)]


def test_within_a_group_of_some_ranks() -> None:
    def body() -> list:
        pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        averager = HierarchicalModelAverager({2: 2}, process_group=pairs[dist.get_rank() // 2])
        return drift(averager, 3)

    found = on_ranks(body, 4)
    assert found[0][2] == found[1][2] != found[2][2] == found[3][2]
