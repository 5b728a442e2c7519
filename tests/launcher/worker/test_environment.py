"""What workers are told by their environment: torchrun's names, and some of our own."""

from __future__ import annotations

import pytest

from disttrain_launcher.plan.generation import Generation
from disttrain_launcher.plan.job import Plan
from disttrain_launcher.worker.environment import worker_env

pytestmark = pytest.mark.simulated

FOUR = Generation((4,))


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


def test_a_rank_of_one_machine_gets_torchrun_s_names_and_texts():
    env = worker_env(Plan(("t.py",), 4, role="r", job="abc"), FOUR, 2)
    assert all(isinstance(value, str) for value in env.values())
    assert (env["RANK"], env["LOCAL_RANK"], env["WORLD_SIZE"]) == ("2", "2", "4")
    assert (env["ROLE_NAME"], env["ROLE_RANK"], env["ROLE_WORLD_SIZE"]) == ("r", "2", "4")
    assert env["TORCHELASTIC_USE_AGENT_STORE"] == "False"
    assert "TORCHELASTIC_ERROR_FILE" not in env and "CUDA_VISIBLE_DEVICES" not in env


def test_a_rank_that_sees_its_device_alone_is_the_first_one_there():
    plan = Plan(("t.py",), 4, devices=("5", "6", "7", "GPU-x"))
    env = worker_env(plan, Generation((2, 4), me=1), 5)
    assert (env["CUDA_VISIBLE_DEVICES"], env["LOCAL_RANK"], env["RANK"]) == ("GPU-x", "0", "5")


def test_the_job_is_that_of_all_its_generations():
    plan = Plan(("t.py",), 4, job="ofplan")
    names = [n for n, v in worker_env(plan, FOUR, 0).items() if v == "ofplan"]
    assert len(names) == 1
    assert worker_env(plan, Generation((4,), job="offirst"), 0)[names[0]] == "offirst"


@pytest.mark.parametrize("fewest, told", [(0, "4"), (3, "3")])
def test_fewer_ranks_than_all_go_on_only_where_that_was_said(fewest, told):
    env = worker_env(Plan(("t.py",), 4, min_ranks=fewest), FOUR, 0)
    assert env["DISTTRAIN_MIN_RANKS"] == told
    elsewhere = Plan(("t.py",), 4, min_ranks=fewest, mpi_hosts=(("a", 4),))
    assert "DISTTRAIN_MIN_RANKS" not in worker_env(elsewhere, FOUR, 0)


def test_what_is_not_the_usual_is_told():
    usual = worker_env(Plan(("t.py",), 4), FOUR, 0)
    asked = worker_env(Plan(("t.py",), 4, on_term="checkpoint", token_file="/t"), FOUR, 0)
    more = {name: value for name, value in asked.items() if name not in usual}
    assert sorted(more.values()) == ["/t", "checkpoint"]
