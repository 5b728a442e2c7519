"""A job as data: what the options leave open, where files go, what people are shown."""

from __future__ import annotations

import dataclasses
import socket

import pytest

from disttrain_launcher import clusters
from disttrain_launcher.options.command_line import parse
from disttrain_launcher.plan.generation import Generation
from disttrain_launcher.plan.job import Plan, describe, make_plan, reserve_port

pytestmark = pytest.mark.simulated


def planned(*words, port=77, place=None):
    options = parse([*words], {})
    if place is not None:
        options = dataclasses.replace(options, place=place)
    return make_plan(options, port)


def test_a_plan_repeats_what_the_options_say():
    plan = planned("--nproc-per-node", "3", "--max-restarts", "2", "--role", "r", "-m", "a.b", "x")
    assert (plan.num_ranks, plan.max_restarts, plan.role) == (3, 2, "r")
    assert plan.program == ("a.b", "x") and plan.module and plan.master_port == 77
    assert not plan.spawn and planned("--start-method", "spawn", "t.py").spawn


def test_ids_are_new_unless_they_are_given():
    first, second = planned("t.py"), planned("t.py")
    assert first.job != second.job and first.run_id != second.run_id != "none"
    assert planned("--rdzv-id", "mine", "t.py").run_id == "mine"
    nodes = ("--nnodes", "2", "--rdzv-endpoint", "h:1", "t.py")
    assert planned(*nodes).run_id == "none", "all nodes have it alike"


def test_a_job_that_its_environment_starts_anew_keeps_its_id():
    place = clusters.Place(lasting="slurm 12")
    same, again = (planned("t.py", "--a", place=place).job for _ in range(2))
    assert same == again and len(same) == 12
    assert planned("t.py", "--b", place=place).job != same, "a script may start several"
    assert planned("t.py", "--a", place=clusters.Place(lasting="slurm 13")).job != same


def test_files_of_each_generation_and_rank():
    plan = Plan(("t.py",), 2, log_dir="logs")
    assert plan.error_file(Generation((2,), number=1), 1) == "logs/attempt_0/1/error.json"
    third = Generation((2, 2), me=1, number=3)
    assert plan.attempt_dir(third) == "logs/node_1/attempt_2"
    assert plan.rank_dir(third, 3) == "logs/node_1/attempt_2/1"


@pytest.mark.parametrize(
    "settings, writes",
    [
        ({}, False),
        ({"redirects": "3"}, True),
        ({"tee": "1:2"}, True),
        ({"tee": "5:2"}, False),  # there is no such rank
        ({"duplicates": ((), ("warn",))}, True),
    ],
)
def test_whether_any_output_goes_to_a_file(settings, writes):
    assert Plan(("t.py",), 2, **settings).writes_files is writes


def test_alone_it_is_one_generation():
    alone = Plan(("t.py",), 3, master_addr="h", master_port=5).alone()
    assert (alone.counts, alone.master_addr, alone.master_port) == ((3,), "h", 5)


def test_a_reserved_port_is_nobody_else_s_and_a_script_s_server_may_have_it():
    with reserve_port() as holder:
        host, port = holder.getsockname()
        assert host == "127.0.0.1" and port > 0
        with socket.socket() as other:
            with pytest.raises(OSError):
                other.bind((host, port))
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind((host, port))
            server.listen()
    with reserve_port("") as holder:
        assert holder.getsockname()[0] == "0.0.0.0"


def test_a_plan_in_words():
    def env_of(plan, generation, rank):
        return {"RANK": str(rank), "WORLD_SIZE": str(generation.world_size)}

    plan = Plan(
        ("train.py", "--lr", "1"), 2, min_ranks=1, replace_ranks=True, on_term="checkpoint",
        cores=((0, 1, 2), (3, 5)), redirects="1", max_restarts=4, shutdown_timeout=7.5,
    )  # fmt: skip
    lines = describe(plan, env_of).splitlines()
    assert lines[0] == "script: train.py --lr 1"
    assert lines[1] == "ranks: 2 on this machine, forked from one warm process"
    assert "goes on with at least 1 ranks" in lines and "SIGTERM: ranks have time to save" in lines
    assert "a rank that fails is started anew, and joins the others" in lines
    assert "restarts: 4; ranks asked to end are killed after 7.5 s" in lines
    assert "logs: a new temporary directory" in lines
    assert lines[-8:] == [
        "rank 0:", "  on cores 0-2", "  RANK=0", "  WORLD_SIZE=2",
        "rank 1:", "  on cores 3,5", "  RANK=1", "  WORLD_SIZE=2",
    ]  # fmt: skip
    other = describe(Plan(("a.b",), 1, module=True, spawn=True, mpi=True), env_of)
    assert "module: a.b" in other and "each a fresh Python" in other and "MPI job" in other
    assert "logs: none" in other and "cores" not in other
    assert describe(Plan(("./t",), 1, no_python=True), env_of).startswith("executable: ./t")
