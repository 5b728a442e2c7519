"""Who listens between two hosts: what is said to be encrypted is, however the job was started, and
who asks for encryption sends nothing to those who do not."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time

import pytest
from standins.etcd import StandIn

import disttrain.distributed as dist
from disttrain import rpc
from disttrain.comm.store import PrefixStore
from disttrain.errors import ConfigError, WorkerError
from disttrain.lifetime import die_with_parent
from support import namespaces
from support.dtrun import ROOT, until
from support.mpi_job import MPIEXEC, mpi_env
from support.namespaces import Wire, outcomes_on, run_on
from support.nodes import Nodes

needs_wire = pytest.mark.skipif(bool(why := namespaces.why_not()), reason=why or "-")

COLLECTIVES, GROUPS, CALLS, STORE, ERRORS = MARKS = tuple(
    mark.encode() * 8 for mark in ("<summed>", "<groups>", "<called>", "<stored>", "<raised>")
)

# Says each mark in the way that it is named after.
PROGRAM = """
import os
import numpy as np
import disttrain as dt
import disttrain.distributed as dist
from disttrain import rpc

def marked(text):
    return dt.tensor(np.frombuffer((text * 8).encode() * 2000, np.uint8).copy())

dist.init_process_group(timeout=30)
rank, size = dist.get_rank(), dist.get_world_size()
x = marked("<summed>")
dist.broadcast(x, 0)
dist.all_gather([dt.empty_like(x) for _ in range(size)], x)
dist.all_reduce(x, op=dist.ReduceOp.MAX)
dist.all_gather_object([None] * size, "<summed>" * 8)
for group in (dist.new_group([0, 1]), dist.new_group([0, 1], backend="tcp")):
    x = marked("<groups>")
    dist.broadcast(x, 0, group=group)
store = dist.distributed_c10d._get_default_store()
store.set(f"key{rank}", "<stored>" * 8)
store.get(f"key{1 - rank}")
os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)
rpc.init_rpc(f"w{rank}", rank=rank, world_size=size)
assert rpc.rpc_sync(f"w{1 - rank}", len, args=("<called>" * 8,)) == 64
assert rpc.rpc_sync(f"w{1 - rank}", len, args=(marked("<called>"),)) == 128000
rpc.shutdown()
dist.destroy_process_group()
if rank == 1:
    raise ValueError("<raised>" * 8)
"""


def bare(wire, tmp_path, **env):
    """Nobody has started the ranks but a shell. What was said to people."""

    def body(rank):
        os.environ.update(env)
        exec(compile(PROGRAM, "script", "exec"), {"__name__": "__main__"})

    first, second = outcomes_on(wire, "ab", body)
    assert first.error is None and "<raised>" in str(second.error), (first, second)
    return ""


def static(wire, tmp_path, **env):
    return by_dtrun(wire, tmp_path, "--rdzv-backend", "static", **env)


def c10d(wire, tmp_path, **env):
    return by_dtrun(wire, tmp_path, **env)


def sealed(wire, tmp_path, **env):
    return by_dtrun(wire, tmp_path, "--rdzv-conf", "tls=1", **env)


def etcd(wire, tmp_path, **env):
    pytest.importorskip("etcd3gw", reason="the extra etcd is not installed")
    with etcd_on(wire) as endpoint:
        flags = "--rdzv-backend", "etcd", "--rdzv-endpoint", endpoint, "--rdzv-id", "job"
        return by_dtrun(wire, tmp_path, *flags, **env)


@contextlib.contextmanager
def etcd_on(wire):
    """Where a stand-in for an etcd answers, on host 0."""
    reader, writer = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if not pid:
        try:
            die_with_parent(parent)
            wire.enter(0)
            with StandIn(1, host=wire.address(0)) as made:
                os.write(writer, made.endpoint.encode())
                time.sleep(60)
        finally:
            os._exit(0)
    try:
        yield os.read(reader, 100).decode()
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(reader)
        os.close(writer)


def by_dtrun(wire, tmp_path, *flags, **env):
    ranked = "static" in flags
    with Nodes(tmp_path, PROGRAM, wire) as job:
        for host, name in enumerate("ab"):
            mine = ("--node-rank", str(host)) if ranked else ()
            job.start(name, "--nnodes", "2", *flags, *mine, host=host, **env)
        codes = {job.ended("a", 40), job.ended("b", 40)}
        said = job.everything()
        assert codes == {1} and "<raised>" in said, said
    return said


WAYS = [bare, static, c10d, sealed, etcd]


@needs_wire
@pytest.mark.timeout(120)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_what_is_said_to_be_encrypted_is(way, tmp_path):
    with Wire(2) as wire:
        said = way(wire, tmp_path, DISTTRAIN_TLS="1")
        heard = wire.overheard()
    seen = {mark for mark in MARKS if mark in heard}
    assert len(heard) > 8 * 128000 and seen <= {STORE, ERRORS}
    assert way is not sealed or ERRORS not in seen
    assert STORE in seen  # which is what the documents say, and dtrun
    if way is not bare:
        (line,) = {text for text in said.splitlines() if "not encrypted:" in text}
        assert "store" in line and ("errors of ranks" in line) == (way in (static, c10d))
        assert ("etcd" in line) == (way is etcd)


@needs_wire
@pytest.mark.timeout(120)
def test_who_listens_would_have_heard(tmp_path):
    with Wire(2) as wire:
        said = c10d(wire, tmp_path)
        heard = wire.overheard()
    assert {mark for mark in MARKS if mark in heard} == {COLLECTIVES, GROUPS, STORE, ERRORS}
    assert "encrypt" not in said


ALONE = """
import disttrain as dt, disttrain.distributed as dist
dist.init_process_group(timeout=20)
dist.all_reduce(dt.ones(3))
"""


@needs_wire
@pytest.mark.parametrize("hosts", ["ab", "aab", "abb"])
@pytest.mark.parametrize("who", [0, 1])
def test_encryption_on_one_side_only_is_refused_on_both(hosts, who):
    """Of ranks that nobody has started but a shell."""

    def body(rank):
        os.environ["DISTTRAIN_TLS"] = str(int(rank == who))
        with pytest.raises(ConfigError, match="TLS between hosts") as told:
            dist.init_process_group(timeout=20)
        others = [r for r in range(len(hosts)) if r != who]
        assert f"asked for by rank {who} and not by rank" in str(told.value)
        assert all(str(r) in str(told.value).partition("not by")[2] for r in others)

    with Wire(2) as wire:
        run_on(wire, hosts, body)


@needs_wire
def test_who_hears_of_an_error_late_hears_all_of_it(monkeypatch):
    """Rank 0 hosts the store, and stays until all of the others have come to the error, too."""

    def body(rank):
        os.environ["DISTTRAIN_TLS"] = str(int(rank == 0))
        if rank == 2:
            read = PrefixStore.multi_get
            monkeypatch.setattr(PrefixStore, "multi_get", lambda *a: time.sleep(1.5) or read(*a))
        with pytest.raises(ConfigError, match="TLS between hosts"):
            dist.init_process_group(timeout=20)

    with Wire(2) as wire:
        run_on(wire, "abb", body)


@needs_wire
@pytest.mark.parametrize("option", ["tls", "data_tls"])
def test_calls_with_tls_on_one_side_only_are_refused_on_both(option):
    def body(rank):
        options = rpc.TensorPipeRpcBackendOptions(**{option: bool(rank)})
        with pytest.raises(WorkerError, match=r"w0 has TLS .* w1 has TLS .*the same tls="):
            rpc.init_rpc(f"w{rank}", rank=rank, world_size=2, rpc_backend_options=options)

    with Wire(2) as wire:
        run_on(wire, "ab", body)


@needs_wire
@pytest.mark.parametrize("backend", ["static", "c10d"])
@pytest.mark.parametrize("who", [0, 1])
def test_nodes_that_differ_are_refused(backend, who, tmp_path):
    with Wire(2) as wire, Nodes(tmp_path, ALONE, wire) as job:
        for host, name in enumerate("ab"):
            mine = ("--node-rank", str(host)) if backend == "static" else ()
            env = {"DISTTRAIN_TLS": "1"} if host == who else {}
            job.start(name, "--nnodes", "2", "--rdzv-backend", backend, *mine, host=host, **env)
        assert {job.ended("a"), job.ended("b")} == {2}, job.everything()
        for name in "ab":
            assert "differ in DISTTRAIN_TLS (TLS between ranks): " in job.said(name)


@pytest.mark.parametrize("who", [0, 1])
def test_a_rendezvous_with_tls_on_one_side_only_is_refused(who, tmp_path):
    with Nodes(tmp_path, ALONE) as job:
        token = ("--token-file", str(job.token), "--nnodes", "2")
        for one, name in enumerate("ab"):
            conf = ("--rdzv-conf", "tls=1") if one == who else ()
            job.start(name, *token, *conf)
            if name == "a":
                until(job.listens, job.endpoint)
        assert job.ended("b") == 2, job.everything()
        assert "tls=1" in job.said("b") and "on all nodes, or on none" in job.said("b")


def test_a_rendezvous_with_tls_needs_a_token_or_files(tmp_path):
    with Nodes(tmp_path, ALONE) as job:
        job.start("a", "--nnodes", "2", "--rdzv-conf", "tls=1")
        assert job.ended("a") == 2 and "made from the job's token" in job.said("a")
        job.start("b", "--nnodes", "2", "--rdzv-conf", "tls=1,cert=x,key=x,ca=x")
        assert job.ended("b") == 2 and "cacert=x" in job.said("b")
        token = ("--token-file", str(job.token), "--nnodes", "2", "--rdzv-conf", "tls=1")
        for name in "cd":
            job.start(name, *token)
        assert [job.ended(name) for name in "cd"] == [0, 0], job.everything()


MPI = """
import sys
import disttrain.distributed as dist
from disttrain.comm.transports.mpi import engine
from mpi4py import MPI
engine.host_id = lambda: f"host {MPI.COMM_WORLD.rank}"
try:
    dist.init_process_group(timeout=20)
except Exception as error:
    with open(f"rank{MPI.COMM_WORLD.rank}", "w") as file:
        file.write(str(error))
"""


@pytest.mark.skipif(not MPIEXEC.exists(), reason="there is no mpiexec here")
@pytest.mark.parametrize(
    ("settings", "said"),
    [("11", "MPI does not encrypt"), ("01", "asked for by rank 1 and not by rank 0")],
)
def test_mpi_which_does_not_encrypt_is_refused(settings, said, tmp_path):
    (tmp_path / "script.py").write_text(MPI)
    words = [MPIEXEC]
    for tls in settings:
        words += [*(":" if len(words) > 1 else "").split(), "-n", "1", "-env", "DISTTRAIN_TLS"]
        words += [tls, sys.executable, "script.py"]
    done = subprocess.run(
        words, cwd=tmp_path, env=mpi_env() | {"PYTHONPATH": str(ROOT)}, capture_output=True,
        text=True, timeout=50, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = [(tmp_path / f"rank{rank}").read_text() for rank in range(2)]
    assert all(said in text and "TLS" in text for text in told), told
