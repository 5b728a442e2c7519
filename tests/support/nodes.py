"""Jobs on several nodes for tests: a dtrun for each, forked from this process.

    with Nodes(tmp_path, PROGRAM) as job:
        job.start("a", "--nnodes", "2", ...)        on this machine
        job.start("b", ..., host=1)                 on host 1 of Nodes(..., wire=wire)
        job.kill("a")                               all of its processes
        assert job.ended("b") == 0 and "..." in job.said("b")

All meet at a port of loopback without a token, or at the wire's first host with one. A node's
folder is its working directory.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sys
import time
import traceback
from pathlib import Path

from disttrain.lifetime import die_with_parent
from disttrain_launcher.command import front
from disttrain_launcher.options.command_line import parse
from disttrain_launcher.worker.processes import descendants
from support.namespaces import Wire
from support.ranks import free_port

PATIENCE = 30.0
ALL = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}


class Nodes:
    """``program``: what ranks run, in the folder of each node."""

    def __init__(self, folder: Path, program: str, wire: Wire | None = None) -> None:
        self.folder, self.wire = folder, wire
        self.script = folder / "script.py"
        self.script.write_text(program)
        self.token = folder / "token"
        self.token.write_bytes(secrets.token_bytes(32))
        self.token.chmod(0o600)
        host = "localhost" if wire is None else wire.address(0)
        self.endpoint = f"{host}:{free_port()}"
        self.pids: dict[str, int] = {}
        self.codes: dict[str, int] = {}

    def start(
        self,
        name: str,
        *flags: str,
        args: tuple[str, ...] = (),
        host: int = 0,
        ahead: int = 0,
        **env: str,
    ) -> None:
        """Start a node. ``flags``: beside those that say where the nodes meet. ``ahead``: seconds
        by which its wall clock is wrong."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        known = ("--rdzv-backend", "c10d", "--rdzv-endpoint", self.endpoint)
        token = () if self.wire is None else ("--token-file", str(self.token))
        argv = [*known, *token, *flags, str(self.script), *args]
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                die_with_parent(parent)
                os.setpgid(0, 0)
                for number in ALL:
                    signal.signal(number, signal.SIG_DFL)
                if self.wire is not None:
                    self.wire.enter(host)
                os.chdir(folder)
                out = os.open("out", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                for fd in (1, 2):
                    os.dup2(out, fd)
                sys.stdout = sys.__stdout__ = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
                sys.stderr = sys.__stderr__ = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
                _shift_clock(ahead)
                os.environ.update(env, TMPDIR=str(folder), XDG_RUNTIME_DIR=str(folder))
                code = front.run(parse(argv))
            except SystemExit as stop:
                code = stop.code if isinstance(stop.code, int) else 1
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        self.pids[name] = pid
        self.codes.pop(name, None)

    def listens(self) -> bool:
        """Does anything listen where they meet?"""
        wanted = f":{int(self.endpoint.rpartition(':')[2]):04X}"
        lines = [x for v in ("tcp", "tcp6") for x in Path("/proc/net", v).read_text().splitlines()]
        return any(w[3] == "0A" and w[1].endswith(wanted) for w in map(str.split, lines))

    def said(self, name: str) -> str:
        path = self.folder / name / "out"
        return path.read_text() if path.exists() else ""

    def ended(self, name: str, timeout: float = PATIENCE) -> int:
        """The exit code of a node, once it has ended."""
        deadline = time.monotonic() + timeout
        while name not in self.codes:
            pid, status = os.waitpid(self.pids[name], os.WNOHANG)
            if pid:
                self.codes[name] = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > deadline:
                raise AssertionError(f"{name} did not end:\n{self.everything()}")
            else:
                time.sleep(0.005)
        return self.codes[name]

    def everything(self) -> str:
        return "\n".join(f"--- {name}\n{self.said(name)}" for name in self.pids)

    def wait_for(self, name: str, *files: str) -> None:
        """Until a node's ranks have made these files."""
        deadline = time.monotonic() + PATIENCE
        while not all((self.folder / name / file).exists() for file in files):
            assert time.monotonic() < deadline, f"{name}: {files}\n{self.everything()}"
            time.sleep(0.005)

    def agent(self, name: str) -> int:
        """The agent's process of a node whose ranks run."""
        for child in descendants(self.pids[name]):
            below = descendants(child)
            if below:
                return child
        raise AssertionError(f"{name} has no agent\n{self.everything()}")

    def kill(self, name: str) -> None:
        """SIGKILL to all processes of a node at once."""
        doomed = [self.pids[name], *descendants(self.pids[name])]
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in doomed:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        self.ended(name)

    def __enter__(self) -> Nodes:
        return self

    def __exit__(self, *exc: object) -> None:
        for name in self.pids:
            if name not in self.codes:
                self.kill(name)


def _shift_clock(seconds: int) -> None:
    """Of this process, and of those that are forked from it."""
    right, right_ns = time.time, time.time_ns
    time.time = lambda: right() + seconds
    time.time_ns = lambda: right_ns() + seconds * 10**9
