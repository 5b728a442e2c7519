"""How workers meet, come and go."""

import gc
import os
import threading

import pytest

from disttrain import context, rpc
from disttrain import distributed as dist
from disttrain.errors import CommError, ConfigError, PeerFailed, WorkerError
from disttrain.rpc.joining import _check_sizes
from support.ranks import fork_ranks, free_port, run_ranks
from support.workers import simulate_workers


def add(a, b=1):
    return a + b


def options(where, **given):
    return rpc.TensorPipeRpcBackendOptions(init_method=where, **given)


def open_things():
    gc.collect()
    return len(os.listdir("/proc/self/fd")) + threading.active_count()


def test_many_groups_one_after_the_other(tmp_path):
    def body(rank):
        where, before = f"file://{tmp_path}/meet", open_things()
        for k in range(4):
            rpc.init_rpc(f"w{rank}", rank=rank, world_size=2, rpc_backend_options=options(where))
            assert rpc.rpc_sync(1 - rank, add, (k,)) == k + 1
            with pytest.raises(CommError, match="is already initialized"):
                rpc.init_rpc("again", rank=rank, world_size=2, rpc_backend_options=options(where))
            rpc.shutdown()
            with pytest.raises(CommError, match="RPC has not been initialized"):
                rpc.rpc_sync(1 - rank, add, (k,))
        context.wait_until(lambda: open_things() <= before, lambda: "things to be closed", 5.0)
        return True

    assert run_ranks(2, body) == [True, True]


def test_groups_and_process_groups_meet_at_one_port(monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setenv("MASTER_PORT", str(free_port()))

    def body(rank):
        dist.init_process_group("gloo", rank=rank, world_size=2)
        for _ in range(2):
            rpc.init_rpc(f"w{rank}", rank=rank, world_size=2)
            assert rpc.rpc_sync(1 - rank, add, (1,)) == 2
            rpc.shutdown()
        dist.destroy_process_group()
        rpc.init_rpc(f"w{rank}", rank=rank, world_size=2)
        dist.init_process_group("gloo", rank=rank, world_size=2)
        rpc.shutdown()
        dist.destroy_process_group()
        return True

    assert run_ranks(2, body) == [True, True]


def test_rank_and_size_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("MASTER_PORT", str(free_port()))

    def body(rank):
        os.environ.update(RANK=str(rank), WORLD_SIZE="2")
        rpc.init_rpc(f"w{rank}")
        found = rpc.get_worker_info().id, rpc.get_worker_info("w1").id
        rpc.shutdown()
        return found

    assert run_ranks(2, body) == [(0, 1), (1, 1)]


def test_a_worker_alone():
    rpc.init_rpc("only", rank=0, world_size=1)
    try:
        assert rpc.rpc_sync("only", add, (1,)) == 2
        assert rpc.rpc_async(0, add, (1,)).wait() == 2
    finally:
        rpc.shutdown()


@pytest.mark.simulated
@pytest.mark.parametrize("seed", range(3))
def test_two_workers_of_one_name_fail_everywhere(seed):
    def body():
        rank = context.current().rank
        with pytest.raises(RuntimeError, match=r"name a is not unique. Workers 0 and 2"):
            rpc.init_rpc("aba"[rank])
        return True

    assert dist.simulate(body, 3, seed=seed).results == [True] * 3


@pytest.mark.simulated
def test_two_workers_of_one_rank_fail_everywhere():
    def body():
        with pytest.raises(RuntimeError, match="id 0 is not unique: two workers came as rank=0"):
            rpc.init_rpc(f"w{context.current().rank}", rank=0, world_size=2)
        return True

    assert dist.simulate(body, 2).results == [True, True]


@pytest.mark.simulated
def test_world_sizes_that_differ_fail_everywhere():
    def body():
        rank = context.current().rank
        with pytest.raises(WorkerError, match=r"world_size=\d given here, and world_size=\d by"):
            rpc.init_rpc(f"w{rank}", rank=rank, world_size=2 + rank)
        return True

    assert dist.simulate(body, 2).results == [True, True]


def test_earlier_groups_of_other_sizes_are_no_objection():
    _check_sizes("3 3 3 2 ", 2, [1])
    with pytest.raises(WorkerError):
        _check_sizes("3 2 ", 2, [1])


def test_names_and_arguments_are_checked_before_anybody_waits():
    for name in ("", "a*", "a" * 200):
        with pytest.raises(RuntimeError, match="Worker name must"):
            rpc.init_rpc(name, rank=0, world_size=2)
    with pytest.raises(TypeError, match="Argument backend must be a member of BackendType"):
        rpc.init_rpc("a", backend="TENSORPIPE")
    with pytest.raises(TypeError, match="must be an instance of RpcBackendOptions"):
        rpc.init_rpc("a", rpc_backend_options={"rpc_timeout": 1})
    with pytest.raises(TypeError, match="incompatible constructor arguments"):
        rpc.TensorPipeRpcBackendOptions(rpc_timeout="1")
    with pytest.raises(ConfigError, match="0 <= rank < world_size"):
        rpc.init_rpc("a", rank=3, world_size=2)
    assert not rpc._is_current_rpc_agent_set()


@pytest.mark.parametrize("odd", [0, 1])
def test_the_others_hear_of_a_name_that_cannot_be(odd, monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setenv("MASTER_PORT", str(free_port()))

    def body(rank):
        with pytest.raises(CommError, match="Worker name must") as error:
            rpc.init_rpc("a*" if rank == odd else f"w{rank}", rank=rank, world_size=3)
        return str(error.value)

    told = run_ranks(3, body)
    assert all(f"worker of rank {odd}: " in told[r] for r in range(3) if r != odd), told


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("maps", "says"),
    [
        ({"worker9": {"cpu": "cpu"}}, "invalid target node names"),
        ({"worker1": {0: 0}}, "source devices with invalid indices"),
    ],
)
def test_device_maps_that_cannot_be_fail_everywhere(maps, says):
    def body():
        rank = context.current().rank
        given = rpc.TensorPipeRpcBackendOptions(device_maps=maps if rank == 0 else None)
        with pytest.raises(ValueError, match=f"Node worker0 has {says}"):
            rpc.init_rpc(f"worker{rank}", rpc_backend_options=given)
        return True

    assert dist.simulate(body, 2).results == [True, True]


@pytest.mark.simulated
def test_device_maps_are_one_to_one():
    with pytest.raises(ValueError, match="only supports 1-to-1"):
        rpc.TensorPipeRpcBackendOptions(device_maps={"a": {0: 1, 1: 1}})
    given = rpc.TensorPipeRpcBackendOptions(device_maps={"a": {"cpu": "cpu"}})
    given.set_device_map("a", {0: 1})
    with pytest.raises(ValueError, match="only supports 1-to-1"):
        given.set_device_map("a", {0: 2})
    with pytest.raises(RuntimeError, match="must not be negative"):
        given.set_device_map("a", {-1: 0})
    assert simulate_workers(2, lambda rank: rank, device_maps={"worker0": {"cpu": "cpu"}}) == [0, 1]


@pytest.mark.simulated
@pytest.mark.parametrize("seed", range(6))
def test_workers_come_and_go(seed):
    def body():
        rank = context.current().rank
        for turn in range(2):
            rpc.init_rpc(f"w{rank}", rank=rank)
            assert rpc.rpc_sync(rank, add, (turn,)) == turn + 1
            for worker in list(rpc._get_current_rpc_agent().workers.by_id.values()):
                try:
                    assert rpc.rpc_sync(worker, add, (turn,)) == turn + 1
                except (WorkerError, PeerFailed):
                    assert worker.id != rank  # it has left meanwhile
            rpc.shutdown()
        return True

    assert dist.simulate(body, 3, seed=seed).results == [True] * 3


def test_a_name_is_free_again_when_its_worker_has_died(tmp_path):
    where = f"file://{tmp_path}/meet"

    def when(name):
        while not (tmp_path / name).exists():
            context.sleep(0.002)

    def body(rank):
        if rank:
            when("first" if rank == 1 else "dead")
        name = "w0" if rank == 0 else "mortal"
        rpc.init_rpc(name, rank=min(rank, 1), rpc_backend_options=options(where))
        if rank == 1:
            assert rpc.rpc_sync("w0", add, (1,)) == 2
            (tmp_path / "dead").touch()
            os._exit(0)
        if rank == 0:
            (tmp_path / "first").touch()
            when("reborn")
            got = rpc.rpc_sync("mortal", add, (6,))
            (tmp_path / "called").touch()
            when("over")
        else:
            (tmp_path / "reborn").touch()
            when("called")
            got = rpc.rpc_sync("w0", add, (5,))
            (tmp_path / "over").touch()
        rpc.shutdown()
        return got

    first, _, reborn = fork_ranks(3, body)
    assert (first.value, reborn.value) == (7, 6), (first, reborn)


@pytest.mark.simulated
def test_a_taken_name_is_refused_to_who_comes_later():
    def body():
        rank = context.current().rank
        if rank == 0:
            rpc.init_rpc("same", rank=0)
            context.sleep(5)
        else:
            context.sleep(1)
            with pytest.raises(RuntimeError, match="name same is not unique"):
                rpc.init_rpc("same", rank=1)
            return True
        rpc.shutdown()
        return True

    assert dist.simulate(body, 2).results == [True, True]
