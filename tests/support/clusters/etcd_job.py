"""A job of several nodes that meet at an etcd, each node on a host of its own if there is a wire.

with etcd_hosts(3) as hosts:                three hosts, a member of one etcd on each
    job = EtcdJob(tmp_path, hosts, "--nnodes", "2:3")
    job.start(0) ... job.start(2)
    job.kill(0)                             all processes of that node
    hosts.cut([0, 1], [2]); hosts.heal()    nothing passes between them
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from support import namespaces
from support.clusters import etcd as etcd_cluster
from support.clusters.etcd import EtcdCluster
from support.dtrun import ROOT, UNWANTED, Ended
from support.namespaces import Wire
from support.stepping import PROGRAM, notes_of


def why_not() -> str:
    """What keeps this machine from having such hosts."""
    return etcd_cluster.why_not() or namespaces.why_not()


class Hosts:
    """``wire`` None: all on this machine's loopback."""

    def __init__(self, count: int, etcd: EtcdCluster, wire: Wire | None = None) -> None:
        self.count, self.etcd, self.wire = count, etcd, wire

    def cut(self, here: Sequence[int], there: Sequence[int], one_way: bool = False) -> None:
        """Nothing goes from ``here`` to ``there`` any more, nor back, unless ``one_way``."""
        for a in here:
            for b in there:
                self.wire.block(a, b)
                if not one_way:
                    self.wire.block(b, a)

    def heal(self) -> None:
        for a in range(self.count):
            for b in range(self.count):
                self.wire.block(a, b, False)


@contextlib.contextmanager
def etcd_hosts(count: int, members: int = 3, *flags: str) -> Iterator[Hosts]:
    """``count`` hosts on a wire, the first ``members`` of which have a member of etcd."""
    with Wire(count) as wire, EtcdCluster(members, wire, *flags) as etcd:
        yield Hosts(count, etcd, wire)


class EtcdJob:
    """dtrun on every host; a folder for each, in which ranks note their steps."""

    def __init__(
        self,
        folder: Path,
        hosts: Hosts,
        *flags: str,
        name: str = "",
        pause: float = 0.02,
        env: dict[str, str] | None = None,
    ) -> None:
        self.folder, self.hosts, self.flags, self.pause = folder, hosts, flags, pause
        self.name = name or secrets.token_hex(4)
        self.env = env or {}
        self.folders = [folder / f"{self.name}-{host}" for host in range(hosts.count)]
        for each in self.folders:
            each.mkdir()
        self.everywhere = str(folder / f"{self.name}-*")
        self.nodes: dict[int, subprocess.Popen] = {}
        self.marks: dict[int, str] = {}
        self.token = folder / f"{self.name}.token"
        self.token.write_bytes(secrets.token_bytes(32))
        self.token.chmod(0o600)
        self.script = folder / f"{self.name}.py"
        self.script.write_text(PROGRAM)
        self.enough = folder / f"{self.name}.enough"

    def start(self, host: int, *flags: str, prefix: Sequence[str] = ()) -> None:
        """Start dtrun there. ``prefix``: in front of the command, such as faketime."""
        mark = self.marks[host] = f"{os.getpid()}.{self.name}.{host}"
        env = {k: v for k, v in os.environ.items() if k not in UNWANTED}
        env |= {"DTRUN_TEST_MARK": mark, "TMPDIR": str(self.folders[host])}
        env |= {"PYTHONPATH": str(ROOT), **self.env}
        wire = self.hosts.wire
        with open(self.folders[host] / "out", "ab") as out:
            self.nodes[host] = subprocess.Popen(
                [
                    *prefix,
                    *(sys.executable, "-m", "disttrain_launcher", "--rdzv-backend", "etcd"),
                    *("--rdzv-endpoint", self.hosts.etcd.endpoint, "--rdzv-id", self.name),
                    *("--token-file", str(self.token), *self.flags, *flags),
                    *(str(self.script), str(self.pause), str(self.enough), self.everywhere),
                ],
                cwd=self.folders[host],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                preexec_fn=None if wire is None else lambda: wire.enter(host),
            )

    def finish(self) -> None:
        """Let the ranks end well."""
        self.enough.touch()

    def wait(self, host: int, timeout: float = 30.0) -> Ended:
        """How dtrun ended there."""
        code = self.nodes[host].wait(timeout)
        text = self.output(host)
        return Ended(code, text, text)

    def running(self) -> list[int]:
        """The hosts on which dtrun has not ended."""
        return [host for host, process in self.nodes.items() if process.poll() is None]

    def node_of_rank_0(self) -> int:
        """The host whose rank 0 has noted the last step of any."""
        last = [[n for n in notes_of([folder]) if n.rank == 0] for folder in self.folders]
        return max(range(len(last)), key=lambda host: last[host][-1].at if last[host] else 0.0)

    def output(self, host: int) -> str:
        return (self.folders[host] / "out").read_text()

    def processes(self, host: int) -> list[int]:
        found, mark = [], f"DTRUN_TEST_MARK={self.marks[host]}\0".encode()
        for entry in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if entry.isdigit() and mark in Path("/proc", entry, "environ").read_bytes():
                    found.append(int(entry))
        return found

    def kill(self, host: int) -> float:
        """SIGKILL to all processes of that node, as when its machine is lost; when that was."""
        when = time.monotonic()
        for _ in range(2):  # and what was forked meanwhile
            for pid in self.processes(host):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.nodes[host].wait()
        return when

    def __enter__(self) -> EtcdJob:
        return self

    def __exit__(self, *exc: object) -> None:
        for host in self.nodes:
            self.kill(host)
