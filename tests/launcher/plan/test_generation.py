"""Who takes part, as numbers; and what workers are told of it."""

from __future__ import annotations

import pytest

from disttrain_launcher.plan.generation import Generation, of_hosts
from disttrain_launcher.plan.job import Plan
from disttrain_launcher.worker.environment import worker_env

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


def test_workers_of_several_nodes_are_told_torchruns_numbers(tmp_path):
    plan = Plan(("train.py",), 3, max_restarts=5, run_id="job", log_dir=str(tmp_path))
    third = Generation((2, 1, 3), me=2, number=4, restart_count=2, master_addr="h", master_port=9)
    env = worker_env(plan, third, 4)
    names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE"
    assert [env[name] for name in names.split()] == ["4", "1", "6", "3", "2", "3"]
    assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == ("h", "9")
    assert env["TORCHELASTIC_RESTART_COUNT"] == "2"
    assert env["DISTTRAIN_GENERATION"] == "4"
    assert env["TORCHELASTIC_ERROR_FILE"] == f"{tmp_path}/node_2/attempt_3/1/error.json"


def test_ranks_of_one_role_are_counted_by_themselves():
    env = [
        worker_env(
            Plan(("t.py",), 2, role=role), Generation((2, 1, 2), me, roles=("a", "b", "a")), r
        )
        for me, role, r in ((0, "a", 1), (1, "b", 2), (2, "a", 4))
    ]
    assert [(e["RANK"], e["ROLE_RANK"], e["ROLE_WORLD_SIZE"]) for e in env] == [
        ("1", "1", "4"), ("2", "0", "1"), ("4", "3", "4"),
    ]  # fmt: skip
