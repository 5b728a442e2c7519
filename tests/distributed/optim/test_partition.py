"""Who owns which parameter, and what travels together: plans on numbers."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.distributed.optim.partition import partition_by_size, plan_chunks


def test_the_largest_goes_to_whom_has_least() -> None:
    owned = partition_by_size([[5, 9, 7, 3]], 3)
    assert owned == [[[1]], [[2]], [[0, 3]]]


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 8])
def test_everyone_is_owned_once_and_loads_are_close(num_ranks: int) -> None:
    rng = np.random.default_rng(num_ranks)
    groups = [list(map(int, rng.integers(1, 100, n))) for n in (40, 1, 0, 17)]
    out = partition_by_size(groups, num_ranks)
    for k, sizes in enumerate(groups):
        assert sorted(i for rank in out for i in rank[k]) == list(range(len(sizes)))
    loads = [sum(groups[k][i] for k in range(len(groups)) for i in rank[k]) for rank in out]
    assert max(loads) - min(loads) <= 100


def test_a_later_group_moves_nobody() -> None:
    groups = [[5, 9, 7], [3, 3, 8, 1]]
    first = partition_by_size(groups[:1], 3)
    assert [rank[:1] for rank in partition_by_size(groups, 3)] == first


def test_messages_hold_every_parameter_once_in_order() -> None:
    sizes = [[4, 4, 4], [10], []]
    assert plan_chunks(sizes, 8) == [[(0, 2), (0, 1), (0, 0)], [(2, 3), (1, 1), (0, 0)]]
    assert plan_chunks([[], []], 8) == []
    assert plan_chunks([[1, 2], [3]], 100) == [[(0, 2), (0, 1)]]
