"""Who takes part, as numbers."""

from __future__ import annotations

import pytest

from disttrain_launcher.plan.generation import Generation, of_hosts

UNEVEN = Generation((2, 1, 3), me=1, number=4, restart_count=2, nodes=("a:1", "b:2", "c:3"))


def test_ranks_follow_the_nodes_in_order():
    assert (UNEVEN.world_size, UNEVEN.num_nodes, UNEVEN.num_ranks) == (6, 3, 1)
    assert list(UNEVEN.ranks) == [2]
    assert [UNEVEN.node_of(rank) for rank in range(6)] == [0, 0, 1, 2, 2, 2]
    assert UNEVEN.name_of(5) == "c:3" and Generation((2,)).name_of(1) == ""
    assert UNEVEN.local_rank(2) == 0
    with pytest.raises(IndexError, match="rank 6 of 6"):
        UNEVEN.node_of(6)


def test_what_follows_has_a_number_of_its_own():
    assert (UNEVEN.after().number, UNEVEN.after().restart_count) == (5, 3)
    assert (UNEVEN.after(0).number, UNEVEN.after(0).restart_count) == (5, 2)


def test_it_survives_the_way_to_a_fresh_process():
    assert Generation.from_json(UNEVEN.to_json()) == UNEVEN


def test_hosts_of_one_size():
    made = of_hosts(7, 3, 4)
    assert (made.counts, made.me, made.local_rank(4)) == ((3, 3, 1), 1, 1)
