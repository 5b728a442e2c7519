"""A real etcd of several members for tests, from Debian's etcd-server.

    with EtcdCluster() as etcd:          three members on loopback
        etcd.endpoint                    "127.0.0.1:41001,127.0.0.1:41002,..."
        etcd.kill(etcd.leader())         SIGKILL; start(member) brings it back
        etcd.stop(0); etcd.go_on(0)      SIGSTOP and SIGCONT
    with EtcdCluster(wire=wire): ...     member i on host i of a wire (support.namespaces)
    with EtcdCluster(1, tls=True)        that asks for certificates; ``conf`` has ours

``why_not()`` says what is missing. What members write goes to memory, so that a slow disk of a test
machine is no fault of etcd's.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import itertools
import json
import os
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

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

    def __init__(
        self, count: int = 3, wire: Wire | None = None, *flags: str, tls: bool = False
    ) -> None:
        self.count, self.wire, self.flags, self.tls = count, wire, flags, tls
        self.conf: dict[str, str] = {}  # what --rdzv-conf must say
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
        if self.tls:
            self.conf = _certificates(Path(self.folder))
            files = ("--trusted-ca-file", "--cert-file", "--key-file")
            given = zip(files, self.conf.values(), strict=True)
            self.flags = (*self.flags, "--client-cert-auth", *itertools.chain(*given))
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
        client = self.client_url(member)
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

    def client_url(self, member: int) -> str:
        """Where a member listens for clients."""
        protocol = "https" if self.tls else "http"
        return f"{protocol}://{self.hosts[member]}:{self.ports[member]}"

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
            f"{self.client_url(member)}/v3{path}",
            json.dumps(body or {}).encode(),
            {"Authorization": token} if token else {},
        )
        context = None
        if self.tls:
            context = ssl.create_default_context(cafile=self.conf["cacert"])
            context.load_cert_chain(self.conf["cert"], self.conf["key"])
        with urllib.request.urlopen(request, timeout=1.0, context=context) as answer:
            return json.load(answer)


def _certificates(folder: Path) -> dict[str, str]:
    """An authority that signs itself, and what it gives to 127.0.0.1, for members and clients."""
    now = datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "disttrain's tests")])
    mine = x509.Name([])
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    paths = {word: str(folder / f"{word}.pem") for word in ("cacert", "cert", "key")}
    alone = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    for word, subject, key, extension in (
        ("cacert", name, keys[0], x509.BasicConstraints(ca=True, path_length=0)),
        ("cert", mine, keys[1], alone),
    ):
        made = (
            x509.CertificateBuilder(name, subject, key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(extension, critical=True)
            .sign(keys[0], hashes.SHA256())
        )
        Path(paths[word]).write_bytes(made.public_bytes(serialization.Encoding.PEM))
    Path(paths["key"]).write_bytes(
        keys[1].private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return paths
