"""Which rank am I: every launcher's names, their order, half-set and contradicting environments."""

from __future__ import annotations

from dataclasses import replace

import pytest

from disttrain.comm.job import slurm
from disttrain.comm.job.worker_env import WorkerEnv, fixed_order_wanted, read_worker_env
from disttrain.errors import ConfigError

CASES = {
    "torchrun": {"RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"},
    "Open MPI": {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4",
                 "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"},
    "MPICH": {"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"},
    "Slurm": {"SLURM_PROCID": "2", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0"},
    "MLX": {"MLX_RANK": "2", "MLX_WORLD_SIZE": "4"},
    "Horovod": {"HOROVOD_RANK": "2", "HOROVOD_SIZE": "4", "HOROVOD_LOCAL_RANK": "0"},
}  # fmt: skip


@pytest.mark.parametrize("family", CASES)
def test_each_launcher_is_understood(family):
    got = read_worker_env(CASES[family])
    assert (got.family, got.rank, got.world_size) == (family, 2, 4)
    assert got.local_rank == (2 if family == "MLX" else 0)


def test_mpi_is_asked_where_it_has_started_the_ranks_and_nobody_names_another_place():
    for family in CASES:
        assert read_worker_env(CASES[family]).by_mpi == (family in ("Open MPI", "MPICH")), family
    assert not read_worker_env(CASES["MPICH"] | {"MASTER_PORT": "29500"}).by_mpi
    assert read_worker_env(CASES["Slurm"] | {"PMIX_RANK": "2"}).by_mpi
    by_dtrun = CASES["torchrun"] | {"MASTER_PORT": "29500", "DISTTRAIN_BY_MPI": "1"}
    assert read_worker_env(by_dtrun).by_mpi


@pytest.mark.parametrize("said, meant", [("", None), ("0", False), ("1", True)])
def test_the_order_of_sums_is_left_open_or_asked_for(said, meant):
    assert fixed_order_wanted({"DISTTRAIN_FIXED_ORDER": said}) is meant


SLURM_STEP = {
    **CASES["Slurm"],
    "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n[08-11,3],m",
       "SLURM_STEP_NUM_NODES": "5", "SLURM_STEP_TASKS_PER_NODE": "2(x4),1", "SLURM_NODEID": "4",
}  # fmt: skip


def test_a_step_of_slurm_tells_where_its_tasks_meet():
    got = read_worker_env(SLURM_STEP)
    assert (got.master_addr, got.master_port, got.local_world_size) == ("n08", 15427, 1)
    assert read_worker_env(SLURM_STEP | {"SLURM_NODEID": "3"}).local_world_size == 2
    assert read_worker_env(SLURM_STEP | {"SLURM_STEP_NUM_NODES": "1"}).master_addr == "127.0.0.1"
    other = read_worker_env(SLURM_STEP | {"SLURM_STEP_ID": "1"})
    assert other.master_port not in (None, got.master_port), "two steps of one job"
    said = SLURM_STEP | {"MASTER_ADDR": "a", "MASTER_PORT": "1"}
    assert read_worker_env(said).master_addr == "a" and read_worker_env(said).master_port == 1
    assert read_worker_env(CASES["Slurm"]).master_port is None, "a batch script, outside srun"


@pytest.mark.parametrize(
    "nodes, first", [("vm", "vm"), ("a1,a2", "a1"), ("n[3]", "n3"), ("r[1-2]-x,b", "r1-x")]
)
def test_the_first_node_of_a_list(nodes, first):
    assert slurm.first_node(nodes) == first


def test_ranks_of_mpi_under_srun_know_their_place_on_the_host():
    got = read_worker_env(SLURM_STEP | {"PMI_RANK": "2", "PMI_SIZE": "4"})
    assert (got.family, got.by_mpi, got.local_rank, got.local_world_size) == ("MPICH", True, 0, 1)


def test_ranks_of_a_launcher_that_slurm_has_started_are_no_tasks_of_slurm():
    rank = {"RANK": "3", "WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "slurm-7.0"}
    got = read_worker_env(SLURM_STEP | rank)  # a warning would be an error here
    assert (got.family, got.rank, got.world_size, got.by_mpi) == ("torchrun", 3, 8, False)
    with pytest.warns(UserWarning, match="two places"):
        read_worker_env(SLURM_STEP | {"RANK": "3", "WORLD_SIZE": "8"})


def test_nothing_set_is_a_single_process():
    assert read_worker_env({"PATH": "/bin"}) == WorkerEnv.inside()


def test_a_meeting_place_alone_is_kept():
    got = read_worker_env({"MASTER_ADDR": "localhost", "MASTER_PORT": "12355"})
    assert got == replace(WorkerEnv.inside(), master_addr="localhost", master_port=12355)


def test_the_earlier_family_wins_and_disagreement_is_told():
    both = CASES["Slurm"] | {"RANK": "1", "WORLD_SIZE": "3"}
    with pytest.warns(UserWarning, match="Slurm says rank 2 of 4"):
        assert read_worker_env(both).rank == 1
    agreeing = CASES["Slurm"] | CASES["torchrun"]
    assert read_worker_env(agreeing).family == "torchrun"


def test_a_half_set_environment_lists_what_is_set():
    with pytest.raises(ConfigError, match=r"RANK=1, LOCAL_RANK=1 is set, but WORLD_SIZE is not"):
        read_worker_env({"RANK": "1", "LOCAL_RANK": "1"})
    with pytest.raises(ConfigError, match=r"WORLD_SIZE=2 is set, but RANK is not"):
        read_worker_env({"WORLD_SIZE": "2"})


@pytest.mark.parametrize(
    "env",
    [
        {"WORLD_SIZE": "2"},
        {"WORLD_SIZE": "7", "LOCAL_WORLD_SIZE": "3"},
        {"RANK": "9"},
        {"RANK": "0", "WORLD_SIZE": "2", "DISTTRAIN_JOB_FD": "5"},
        CASES["Slurm"],
        CASES["Slurm"] | {"WORLD_SIZE": "9"},
        {},
    ],
)
def test_what_the_program_gives_needs_no_environment(env):
    got = read_worker_env(env, rank=1, world_size=3)
    assert (got.rank, got.world_size, got.family, got.job_fd) == (1, 3, "arguments", None)
    assert got.local_world_size == 3


def test_half_of_it_may_come_from_the_environment():
    assert read_worker_env({"WORLD_SIZE": "4"}, rank=2).rank == 2
    assert read_worker_env({"RANK": "1"}, world_size=4).rank == 1
    assert read_worker_env(CASES["Slurm"], rank=3).world_size == 4
    env = CASES["torchrun"] | {"DISTTRAIN_JOB_FD": "5"}
    assert read_worker_env(env, rank=2, world_size=4).job_fd == 5
    for given in ({"rank": 1}, {"world_size": 3}, {"rank": 3, "world_size": 3}):
        with pytest.raises(ConfigError, match="needed is 0 <= rank < world_size"):
            read_worker_env({}, **given)


@pytest.mark.parametrize("rank, size", [("4", "4"), ("-1", "4"), ("0", "0"), ("x", "4")])
def test_numbers_must_make_sense(rank, size):
    with pytest.raises(ConfigError, match="RANK"):
        read_worker_env({"RANK": rank, "WORLD_SIZE": size})


def test_the_rest_of_the_contract():
    env = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "h", "MASTER_PORT": "29500",
           "DISTTRAIN_JOB_FD": "5", "TORCHELASTIC_RESTART_COUNT": "2"}  # fmt: skip
    got = read_worker_env(env)
    assert (got.master_addr, got.master_port, got.job_fd) == ("h", 29500, 5)
    assert got.restart_count == 2
