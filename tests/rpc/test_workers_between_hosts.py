"""Calls over gRPC, between workers that share nothing but a network."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import disttrain as dt
from disttrain import rpc
from disttrain.errors import PeerFailed
from disttrain.rpc.calls.endpoints import Ways, open_endpoint
from disttrain.rpc.messages.local.endpoint import LocalEndpoint
from support.namespaces import Wire, run_on, why_not
from support.ranks import RankError, run_ranks
from support.workers import run_workers

ROOT = Path(__file__).parents[2]


def scaled(tensor, by):
    return tensor * by


def spread(n):
    """A call to every other worker, from here."""
    return [rpc.rpc_sync(f"worker{i}", os.getpid) for i in range(n)]


def listeners():
    """The addresses, as the kernel writes them, at which this process listens for TCP."""
    mine = set()
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            mine.add(os.readlink(f"/proc/self/fd/{fd}"))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in mine:
                found.add(fields[1].partition(":")[0])
    return found


LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}  # 127.0.0.1, also for IPv6 sockets


def test_workers_of_one_host_listen_on_no_network(tmp_path):
    assert run_workers(2, lambda rank: listeners(), tmp_path) == [set(), set()]


def test_a_worker_of_one_host_loads_no_grpc():
    program = """
import sys
from disttrain import rpc
rpc.init_rpc("alone", rank=0, world_size=1)
assert rpc.rpc_sync("alone", max, (1, 2)) == 2
rpc.shutdown()
print(sorted({"grpc", "cryptography"} & set(sys.modules)))
"""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_calls_over_grpc_on_one_host(tmp_path):
    def body(rank):
        assert listeners() and listeners() <= LOOPBACK
        large = dt.arange(1_000_000.0).reshape(1000, 1000)
        peer = f"worker{1 - rank}"
        assert (rpc.rpc_sync(peer, scaled, (large, 2)) == large * 2).all()
        many = [rpc.rpc_async(peer, scaled, (dt.tensor(float(i)), 3)) for i in range(50)]
        with pytest.raises(ZeroDivisionError, match=peer):
            rpc.rpc_sync(peer, divmod, (1, 0))
        return sum(each.wait().item() for each in many)

    assert run_workers(2, body, tmp_path, transports="grpc") == [3675.0] * 2


def test_some_workers_share_a_host_and_others_do_not(tmp_path):
    """Worker 2 has no Unix socket, as if it were elsewhere."""

    def body(rank):
        return rpc.rpc_sync(f"worker{(rank + 1) % 3}", spread, (3,)) == spread(3)

    where = f"file://{tmp_path}/meet"

    def rank_body(rank):
        ways = ["grpc"] if rank == 2 else ["local", "grpc"]
        options = rpc.TensorPipeRpcBackendOptions(init_method=where, transports=ways)
        rpc.init_rpc(f"worker{rank}", rank=rank, world_size=3, rpc_backend_options=options)
        same = body(rank)
        rpc.shutdown()
        return same

    assert run_ranks(3, rank_body) == [True] * 3


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
def test_a_worker_that_dies_or_stops_is_told_in_time(tmp_path, sent):
    """The caller of a worker elsewhere, which no process of its host watches."""

    told = tmp_path / "told"

    def rank_body(rank):
        options = rpc.TensorPipeRpcBackendOptions(
            init_method=f"file://{tmp_path}/meet", transports="grpc"
        )
        rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2, rpc_backend_options=options)
        if rank == 1:
            time.sleep(60)
        pid = rpc.rpc_sync("worker1", os.getpid)
        waiting = rpc.rpc_async("worker1", time.sleep, (60,))
        os.kill(pid, sent)
        with pytest.raises(PeerFailed, match="worker1"):
            waiting.wait()
        with pytest.raises(PeerFailed):
            rpc.rpc_sync("worker1", os.getpid)
        rpc.shutdown(graceful=False)
        told.write_text("yes")
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    with pytest.raises(RankError, match="rank 1: killed by SIGKILL"):
        run_ranks(2, rank_body)
    assert told.read_text() == "yes"


@pytest.mark.skipif(bool(why_not()), reason=why_not())
@pytest.mark.parametrize("lost", [0, 5])
def test_workers_call_each_other_over_a_slow_or_a_lossy_network(lost):
    """600 ms to and fro, four times in a handshake; or a twentieth of all packets lost."""

    def body(rank):
        rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2)
        if rank == 0:
            assert rpc.rpc_sync("worker1", scaled, (dt.ones(1000), 2), timeout=60).sum() == 2000
        rpc.shutdown()

    with Wire(2) as wire:
        wire.lose(lost)
        wire.delay(0.02 if lost else 0.3)
        run_on(wire, "ab", body, 90)


PROGRAM = """
    import os, sys
    import disttrain as dt
    from disttrain import rpc

    rank = int(sys.argv[1])
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2)
    if rank == 1:
        large = dt.arange(300_000.0)
        assert (rpc.rpc_sync("worker0", dt.add, (large, 1)) == large + 1).all()
        print("answered by", rpc.rpc_sync("worker0", os.stat, ("/proc/self/ns/net",)).st_ino)
    rpc.shutdown()
"""


class Hosts:
    """Two network namespaces with a wire between them, in place of two hosts."""

    addresses = ("10.213.7.1", "10.213.7.2")

    def __init__(self):
        self.names = [f"dt{os.getpid()}{i}" for i in range(2)]
        a, b = self.names
        for name in self.names:
            _ip("netns", "add", name)
        _ip("-n", a, "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", b)
        for name, address in zip(self.names, self.addresses):
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", "wire")
            for link in ("lo", "wire"):
                _ip("-n", name, "link", "set", link, "up")

    def close(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def start(self, host, args, **env):
        command = ["ip", "netns", "exec", self.names[host], sys.executable, *args]
        out = subprocess.PIPE
        env = {**os.environ, "PYTHONPATH": str(ROOT), **env}
        return subprocess.Popen(command, env=env, stdout=out, stderr=out, text=True)


def _ip(*args):
    subprocess.run(["ip", *args], check=True, capture_output=True)


@pytest.fixture
def hosts():
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("needs root and ip(8) to make network namespaces")
    made = None
    try:
        made = Hosts()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"cannot make network namespaces here: {error.stderr!r}")
    yield made
    made.close()


def test_workers_in_two_network_namespaces_call_each_other(hosts, tmp_path):
    token = tmp_path / "token"
    token.write_bytes(os.urandom(32))
    token.chmod(0o600)
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))
    place = {
        "DISTTRAIN_TOKEN_FILE": str(token),
        "MASTER_ADDR": hosts.addresses[0],
        "MASTER_PORT": "29777",
    }
    workers = [
        hosts.start(host, [str(tmp_path / "program.py"), str(host)], **place) for host in (0, 1)
    ]
    try:
        told = [worker.communicate(timeout=50) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert [worker.returncode for worker in workers] == [0, 0], told
    there = int(told[1][0].rpartition(" ")[2])
    assert there != os.stat("/proc/self/ns/net").st_ino


def test_workers_that_say_nothing_use_what_their_hosts_need():
    """On one host that is Unix sockets and shared memory; nobody listens on a network."""
    assert rpc.TensorPipeRpcBackendOptions().ways == Ways() == Ways(None, None, True)
    with open_endpoint(0, bytes(32), rpc.TensorPipeRpcBackendOptions().ways) as endpoint:
        assert isinstance(endpoint, LocalEndpoint)
