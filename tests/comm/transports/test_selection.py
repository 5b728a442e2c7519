"""Which transport a group gets: what ``backend=`` may say, and who is where."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

import disttrain as dt
from disttrain import context
from disttrain import distributed as dist
from disttrain.comm.job.worker_env import WorkerEnv
from disttrain.comm.meeting import meeting
from disttrain.comm.meeting.meeting import Meeting, host_id
from disttrain.comm.store import FileStore, HashStore
from disttrain.comm.transports import selection
from disttrain.errors import BackendError, ConfigError
from support.hosts import run_hosts
from support.ranks import run_ranks

INSIDE = WorkerEnv.inside()


@pytest.mark.parametrize(
    ("given", "text", "cpu", "config"),
    [
        (None, "undefined", "gloo", "cpu:gloo"),
        ("GLOO", "gloo", "gloo", "cpu:gloo,cuda:gloo"),
        ("shm", "shm", "shm", "cpu:shm"),
        ("nccl", "nccl", "gloo", "cuda:nccl"),
        ("cpu:shm,cuda:nccl", "cpu:shm,cuda:nccl", "shm", "cpu:shm,cuda:nccl"),
        ("cuda:nccl,cpu:gloo", "cuda:nccl,cpu:gloo", "gloo", "cuda:nccl,cpu:gloo"),
        ("xpu:gloo", "xpu:gloo", "gloo", "xpu:gloo"),
    ],
)
def test_what_a_backend_may_be(given, text, cpu, config):
    backend = selection.parse(given)
    assert (backend.text, backend.cpu, backend.config) == (text, cpu, config)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("foo", "there is no backend 'foo'; needed is one of gloo, shm"),
        ("", "there is no backend ''"),
        ("gloo,nccl", "there is no backend 'gloo,nccl'"),
        ("cpu:foo", "there is no backend 'foo'"),
        ("gloo,cuda:nccl", "'gloo' is no pair"),
        ("cpu:", "'cpu:' is no pair"),
        ("cpu:gloo,cpu:shm", "names cpu twice"),
    ],
)
def test_what_it_may_not_be(given, message):
    with pytest.raises(BackendError, match=message) as error:
        selection.parse(given)
    assert isinstance(error.value, ValueError) and isinstance(error.value, RuntimeError)


@pytest.mark.parametrize("name", ["nccl", "cpu:nccl", "xccl", "sim"])
def test_what_cannot_be_used_here_is_said_before_anybody_is_waited_for(name):
    alone = Meeting(0, 2, INSIDE, open_store=lambda: pytest.fail("nobody is to be met"))
    with pytest.raises(BackendError, match=r"cannot be used here: .*Use backend='gloo'"):
        selection.connect(selection.parse(name), alone)
    assert not dist.is_backend_available(name.rpartition(":")[2])
    assert dist.is_backend_available("gloo") and dist.is_backend_available("SHM")
    assert not dist.is_backend_available("foo")


def chosen(hosts: list[str], place: WorkerEnv, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What each rank of ``hosts`` chooses, as one thread each."""
    here = threading.local()
    here.host = "of the test"
    monkeypatch.setattr(meeting, "host_id", lambda: here.host)
    store, found = HashStore(), [""] * len(hosts)

    def body(rank: int) -> None:
        here.host = hosts[rank]
        mine = Meeting(rank, len(hosts), place, 10.0, open_store=lambda: store)
        found[rank] = selection.choose("gloo", mine)

    threads = [threading.Thread(target=body, args=(rank,)) for rank in range(len(hosts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_the_best_way_is_that_which_reaches_all(monkeypatch):
    assert chosen(["a", "a", "a"], INSIDE, monkeypatch) == ["shm"] * 3
    assert chosen(["a", "b", "a"], INSIDE, monkeypatch) == ["tcp"] * 3
    alone = Meeting(0, 2, replace(INSIDE, by_mpi=True))
    assert selection.choose("gloo", alone) == "mpi", "nothing but MPI can make these ranks meet"
    assert selection.choose("gloo", Meeting(0, 1, INSIDE)) == "shm"
    assert selection.choose("tcp", Meeting(0, 1, INSIDE)) == "tcp"


@pytest.mark.parametrize("backend", ["nccl", "cpu:gloo,cuda:nccl"])
def test_what_does_not_encrypt_is_not_used_where_that_was_asked_for(backend, monkeypatch):
    monkeypatch.setattr(selection, "_check_devices", lambda backend: None)

    def body(group):
        place = WorkerEnv(group.rank, 2, generation=0, token_file=None, tls=True)
        mine = Meeting(group.rank, 2, place, 10.0)
        engine = SimpleNamespace(DEVICES=("cuda",), missing=lambda: None)
        engine.connect = lambda meeting: group.transport
        monkeypatch.setattr(selection, "_load", lambda name: engine)
        mine._hosts = ["a", "b"]
        with pytest.raises(BackendError, match="nccl does not encrypt"):
            selection.between(backend, group.transport, SimpleNamespace(kind="cuda"))
        by_host = selection.between("undefined", group.transport, SimpleNamespace(kind="cuda"))
        assert type(by_host).__name__ == "Staged"
        with pytest.raises(BackendError, match=r"nccl does not encrypt .*asks for TLS"):
            selection.connect(selection.parse(backend), mine)

    run_hosts("ab", body, tls=True)


def test_a_host_is_a_kernel_a_network_and_a_user():
    boot, network, user = host_id().split("-")
    assert len(boot) == 16 and network.isdigit() and user.isdigit()


def test_ranks_without_a_store_are_told_what_is_missing():
    with pytest.raises(ConfigError, match=r"2 ranks cannot meet without a store.*MASTER_PORT"):
        selection.connect(selection.parse("shm"), Meeting(0, 2, INSIDE))


def test_groups_are_called_what_the_program_called_them(tmp_path):
    def body():
        dist.init_process_group("cpu:gloo,cuda:nccl")
        names = [dist.get_backend(), dist.get_backend(dist.new_group([0, 1]))]
        for said in ("GLOO", "sim", "cpu:shm"):
            names.append(dist.get_backend(dist.new_group([0, 1], backend=said)))
        config = dist.get_backend_config()
        with pytest.raises(BackendError, match="'foo'"):
            dist.new_group([0], backend="foo")
        dist.destroy_process_group()
        dist.init_process_group()
        return [*names, config, dist.get_backend()]

    whole = "cpu:gloo,cuda:nccl"
    want = [whole, whole, "gloo", "sim", "cpu:shm", whole, "undefined"]
    assert dist.simulate(body, 2).results == [want, want]


def test_a_group_on_another_transport_than_the_default_one(tmp_path, monkeypatch):
    monkeypatch.setitem(selection.ENGINES, "tcp", "shm.engine")

    def body(rank):
        store = FileStore(str(tmp_path / "store"), 3)
        dist.init_process_group("shm", rank=rank, world_size=3, store=store, timeout=20.0)
        seen = []
        for _ in range(2):
            group = dist.new_group([2, 0], backend="tcp", sort_ranks=False)
            x = dt.full((3,), float(rank + 1))
            if rank != 1:
                dist.all_reduce(x, group=group)
            seen += [x[0].item(), dist.get_rank(group)]
            assert rank == 1 or dist.get_backend(group) == "tcp"
        dist.all_reduce(x)
        dist.destroy_process_group()
        return [*seen, x[0].item()]

    # ranks 0 and 2 have 1 + 3 each, rank 1 its own 2
    assert run_ranks(3, body) == [
        [4.0, 1, 4.0, 1, 10.0],
        [2.0, -1, 2.0, -1, 10.0],
        [4.0, 0, 4.0, 0, 10.0],
    ]


@pytest.mark.parametrize("given", [None, "gloo"])
def test_ranks_of_mpi_are_told_what_they_need_to_meet(monkeypatch, given):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    for name in ("MASTER_PORT", "MASTER_ADDR", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PMI_RANK", "1")
    monkeypatch.setenv("PMI_SIZE", "2")
    here = context.current()
    before = here.rank, here.world_size, here.local_rank, here.local_world_size
    needed = (
        r"MPI has started this process as rank 1 of 2, no MASTER_PORT is set, so the ranks meet "
        r"through MPI, but mpi4py is not installed; .*pip install 'disttrain\[mpi\]'"
    )
    try:
        with pytest.raises(BackendError, match="init_process_group: .*" + needed) as error:
            dist.init_process_group(given)
        assert "undefined" not in str(error.value) and "Use backend=" not in str(error.value)
        with pytest.raises(BackendError, match="init_rpc: " + needed):
            dist.rpc.init_rpc("worker1")
    finally:
        here.rank, here.world_size, here.local_rank, here.local_world_size = before
