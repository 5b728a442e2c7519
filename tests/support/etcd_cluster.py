"""A real etcd of several members for tests, from Debian's etcd-server.

    with EtcdCluster() as etcd:          three members on loopback
        etcd.endpoint                    "127.0.0.1:41001,127.0.0.1:41002,..."
        etcd.kill(etcd.leader())         SIGKILL; start(member) brings it back
        etcd.stop(0); etcd.go_on(0)      SIGSTOP and SIGCONT
    with EtcdCluster(wire=wire): ...     member i on host i of a wire (support.namespaces)

``why_not()`` says what is missing. What members write goes to memory, so that a slow disk of a test
machine is no fault of etcd's.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from disttrain.lifetime import die_with_parent
from support.namespaces import Wire
from support.ranks import free_port

PATIENCE = 20.0  # seconds for a cluster to have a leader


def why_not() -> str:
    """What keeps this machine from running an etcd; empty where nothing does."""
    if not shutil.which("etcd"):
        return "there is no etcd (apt-get install etcd-server)"
    try:
        import etcd3gw  # noqa: F401
    except ImportError:
        return "the package etcd3gw is missing (pip install 'disttrain[etcd]')"
    return ""


class EtcdCluster:
    """``count`` members. Killed with whoever made them."""

    def __init__(self, count: int = 3, wire: Wire | None = None, *flags: str) -> None:
        self.count, self.wire, self.flags = count, wire, flags
        self.processes: dict[int, subprocess.Popen] = {}
        self.hosts = [wire.address(i) if wire else "127.0.0.1" for i in range(count)]
        self.ports = [2379 if wire else free_port() for _ in range(count)]
        self.peers = [2380 if wire else free_port() for _ in range(count)]
        self._stack = contextlib.ExitStack()

    @property
    def endpoint(self) -> str:
        """What ``--rdzv-endpoint`` takes."""
        return ",".join(f"{h}:{p}" for h, p in zip(self.hosts, self.ports, strict=True))

    def __enter__(self) -> EtcdCluster:
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = self._stack.enter_context(tempfile.TemporaryDirectory(dir=memory))
        self._stack.callback(self.kill_all)
        try:
            for member in range(self.count):
                self.start(member)
            self.leader()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def start(self, member: int) -> None:
        """Start a member, or start it again with what it has written."""
        url = "http://{}:{}".format
        client = url(self.hosts[member], self.ports[member])
        peer = url(self.hosts[member], self.peers[member])
        everyone = (f"m{i}={url(self.hosts[i], self.peers[i])}" for i in range(self.count))
        parent, wire = os.getpid(), self.wire

        def prepare() -> None:
            die_with_parent(parent)
            if wire is not None:
                wire.enter(member)

        with open(f"{self.folder}/{member}.log", "ab") as log:
            self.processes[member] = subprocess.Popen(
                [
                    *("etcd", "--name", f"m{member}", "--data-dir", f"{self.folder}/{member}"),
                    *("--listen-client-urls", client, "--advertise-client-urls", client),
                    *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                    *("--initial-cluster", ",".join(everyone), *self.flags),
                ],
                stdout=log,
                stderr=log,
                env={**os.environ, "GOMAXPROCS": "1", "ETCD_UNSUPPORTED_ARCH": "arm64"},
                preexec_fn=prepare,
            )

    def kill(self, member: int, number: int = signal.SIGKILL) -> None:
        """End a member."""
        process = self.processes.pop(member)
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
        process.wait()

    def kill_all(self) -> None:
        """End all members."""
        for member in list(self.processes):
            self.kill(member)

    def stop(self, *members: int) -> None:
        """Stop members (all), as a machine that hangs; ``go_on`` ends that."""
        for member in members or list(self.processes):
            self.processes[member].send_signal(signal.SIGSTOP)

    def go_on(self, *members: int) -> None:
        for member in members or list(self.processes):
            self.processes[member].send_signal(signal.SIGCONT)

    @contextlib.contextmanager
    def stopped(self, *members: int) -> Iterator[None]:
        self.stop(*members)
        try:
            yield
        finally:
            self.go_on(*members)

    def leader(self) -> int:
        """Which member leads, once one does."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            for member in self.processes:
                try:
                    status = self.post(member, "/maintenance/status")
                    self.post(member, "/kv/range", {"key": "YQ=="})
                except OSError:
                    continue
                if status.get("leader") == status["header"]["member_id"]:
                    return member
            time.sleep(0.05)
        raise TimeoutError(f"no leader in {PATIENCE} s; see {self.folder}")

    def post(
        self, member: int, path: str, body: dict[str, Any] | None = None, token: str = ""
    ) -> dict[str, Any]:
        """A request to one member by no client of ours, from its own host."""
        if self.wire is None:
            return self._post(member, path, body, token)
        with ThreadPoolExecutor(1, initializer=self.wire.enter, initargs=(member,)) as there:
            return there.submit(self._post, member, path, body, token).result()

    def _post(
        self, member: int, path: str, body: dict[str, Any] | None, token: str
    ) -> dict[str, Any]:
        request = urllib.request.Request(
            f"http://{self.hosts[member]}:{self.ports[member]}/v3{path}",
            json.dumps(body or {}).encode(),
            {"Authorization": token} if token else {},
        )
        with urllib.request.urlopen(request, timeout=1.0) as answer:
            return json.load(answer)
