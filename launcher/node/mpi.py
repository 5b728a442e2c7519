"""``dtrun --backend mpi``: mpiexec makes the ranks an MPI job, and the agent keeps them.

The agent starts mpiexec, which starts a shim for each rank (``mpi_shim``); the agent forks the
ranks itself, and each takes over from its shim what MPI has told it: some environment, and the
descriptor at which mpiexec is spoken to. Where a hostfile names other machines, mpiexec starts the
program itself, with what it can say of it.

Knows mpiexec and sockets; no MPI.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import secrets
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable

from disttrain.errors import LaunchError
from disttrain.lifetime import die_with_parent, end_of

from ..plan.job import Plan

START = 60.0  # seconds for mpiexec to start the shims
_END = 2.0  # ... to end
_SHIM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mpi_shim.py")
_SHARED = "/dev/shm/mpich_"  # MPICH's memory of a job on one machine, unlinked when ranks finalize
_HERE = ("localhost", "127.0.0.1", "::1")


def find_mpiexec() -> str | None:
    """The mpiexec of this Python's environment, else that of PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    return beside if os.access(beside, os.X_OK) else shutil.which("mpiexec")


def read_hostfile(path: str) -> list[tuple[str, int]]:
    """The hosts and their slots (0: not said). A line is ``host``, ``host:4`` or ``host slots=4``.

    Raises ``LaunchError`` for anything else.
    """
    found = []
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.partition("#")[0].split() for line in file]
    except OSError as error:
        raise LaunchError(f"--hostfile {path}: cannot be read: {error}") from None
    for number, words in enumerate(lines, 1):
        if not words:
            continue
        host, _, slots = words[0].partition(":")
        rest = dict(word.partition("=")[::2] for word in words[1:])
        slots = rest.get("slots", slots) or "0"
        if not host or not slots.isdigit() or set(rest) - {"slots", "max_slots", "max-slots"}:
            raise LaunchError(
                f"--hostfile {path}, line {number}: {' '.join(words)!r}; needed is a host, "
                "host:4 or host slots=4"
            )
        found.append((host, int(slots)))
    if not found:
        raise LaunchError(f"--hostfile {path}: names no host")
    return found


def is_here(host: str) -> bool:
    """Is that this machine?"""
    names = (socket.gethostname(), os.uname().nodename)
    return host in _HERE or host in names or host in [name.partition(".")[0] for name in names]


def is_open_mpi(mpiexec: str) -> bool:
    """Whose mpiexec is it? (MPICH's and Intel's are alike.)"""
    try:
        asked = subprocess.run(
            [mpiexec, "--version"], capture_output=True, text=True, timeout=START, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LaunchError(f"{mpiexec} --version has not answered: {error}") from None
    return any(name in asked.stdout for name in ("Open MPI", "OpenRTE"))


def _told_open_mpi() -> list[str]:
    """What Open MPI must be told, that others do of themselves: ranks may be more than processors,
    and root may start them."""
    return ["--map-by", ":OVERSUBSCRIBE", *allowed_as_root()]


def allowed_as_root() -> list[str]:
    """What Open MPI must be told where root starts it."""
    return ["--allow-run-as-root"] if os.getuid() == 0 else []


def command(mpiexec: str, num_ranks: int, name: str) -> list[str]:
    """That starts the shims of ranks that wait at ``name``."""
    told = _told_open_mpi() if is_open_mpi(mpiexec) else []
    return [mpiexec, *told, "-n", str(num_ranks), sys.executable, "-I", "-S", _SHIM, name]


def command_between_hosts(mpiexec: str, plan: Plan) -> list[str]:
    """That starts the program itself, on several machines."""
    hosts = ",".join(f"{host}:{n}" for host, n in plan.mpi_hosts)
    program = list(plan.program)
    if not plan.no_python:
        program = [sys.executable, *(["-m"] if plan.module else []), *program]
    total = sum(n for _, n in plan.mpi_hosts)
    if is_open_mpi(mpiexec):
        told = [*_told_open_mpi(), "--host", hosts, "-n", str(total), "--tag-output"]
    else:
        told = ["-hosts", hosts, "-n", str(total), "-prepend-rank"]
    return [mpiexec, *told, *program]


def with_hosts(plan: Plan, hostfile: str | None) -> Plan:
    """The plan with as many ranks as the hosts of ``hostfile`` have together.

    Raises ``LaunchError`` where something is missing.
    """
    if find_mpiexec() is None:
        raise LaunchError(
            "--backend mpi: there is no mpiexec here; install MPICH as a wheel with "
            "pip install 'disttrain[mpi]', or the machine's own MPI and mpi4py"
        )
    if hostfile is None:
        return plan
    hosts = [(host, slots or plan.num_ranks) for host, slots in read_hostfile(hostfile)]
    elsewhere = not all(is_here(host) for host, _ in hosts)
    return dataclasses.replace(
        plan,
        num_ranks=sum(n for _, n in hosts),
        mpi_hosts=tuple(hosts) if elsewhere else (),
    )


def run_between_hosts(plan: Plan) -> int:
    """Run the program by mpiexec, and pass signals on; its exit code."""
    mpiexec = find_mpiexec()
    assert mpiexec is not None
    process = subprocess.Popen(command_between_hosts(mpiexec, plan), preexec_fn=_alone(os.getpid()))
    for number in plan.signals:
        signal.signal(number, lambda which, _: process.send_signal(which))
    code = process.wait()
    return 128 - code if code < 0 else code


class Shims:
    """One mpiexec, seen by the agent and by the ranks that it forks."""

    def __init__(self, num_ranks: int) -> None:
        mpiexec = find_mpiexec()
        assert mpiexec is not None
        name = f"dtrun-{secrets.token_hex(16)}"
        self._listeners = []
        for rank in range(num_ranks):
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(f"\0{name}-{rank}")
            listener.listen(1)
            self._listeners.append(listener)
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            command(mpiexec, num_ranks, name), stdin=subprocess.DEVNULL,
            stdout=self._said, stderr=self._said, preexec_fn=_alone(os.getpid()),
        )  # fmt: skip
        self._end = end_of(self._process.pid)
        self._shared: set[str] = set()

    def look(self, pids: Iterable[int]) -> None:
        """See which memory the ranks share: those that are killed leave it behind."""
        for pid in pids:
            with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
                self._shared |= {line.split()[-1] for line in maps if _SHARED in line}

    def attach(self, rank: int, agent: int) -> None:
        """In a process that the agent has forked: become ``rank`` for MPI, too."""
        die_with_parent(agent)
        _take_over(self._wait_for_shim(rank))
        for listener in self._listeners:
            listener.close()

    def _wait_for_shim(self, rank: int) -> socket.socket:
        listener, poll = self._listeners[rank], select.poll()
        poll.register(listener, select.POLLIN)
        poll.register(self._end, select.POLLIN)
        deadline = time.monotonic() + START
        while True:
            ready = [fd for fd, _ in poll.poll(max(0.0, deadline - time.monotonic()) * 1000)]
            if listener.fileno() in ready:
                link, _ = listener.accept()
                if _is_mine(link):
                    return link
                link.close()
            elif self._end in ready:
                raise LaunchError(f"mpiexec has ended before it started the ranks: {self.said()}")
            elif time.monotonic() > deadline:
                raise LaunchError(
                    f"mpiexec has not started the ranks in {START:g} s: {self.said()}"
                )

    def said(self) -> str:
        """The end of what mpiexec has printed."""
        size = os.fstat(self._said.fileno()).st_size
        text = os.pread(self._said.fileno(), 2000, max(0, size - 2000)).decode(errors="replace")
        return text.strip() or "it has said nothing"

    def close(self) -> None:
        """The ranks have ended: end mpiexec, and remove what they have left."""
        for listener in self._listeners:
            listener.close()
        for number in (signal.SIGTERM, signal.SIGKILL):  # Open MPI's removes its files at the first
            self._process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END)
                break
        os.close(self._end)
        self._said.close()
        for path in self._shared:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


def _alone(agent: int) -> Callable[[], None]:
    """mpiexec in a group of its own: what the terminal sends goes to the ranks by the agent."""

    def prepare() -> None:
        die_with_parent(agent)
        os.setpgid(0, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    return prepare


def _is_mine(link: socket.socket) -> bool:
    """Is it a process of this user?"""
    _, uid, _ = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return uid == os.getuid()


def _take_over(link: socket.socket) -> None:
    """Take what a shim sends. Its end of ``link`` shows it when this process has ended."""
    head, fds, _, _ = socket.recv_fds(link, 4, 1)
    size, data = int.from_bytes(head, "little"), b""
    while len(data) < size:
        part = link.recv(size - len(data))
        if not part:
            raise LaunchError("a process that mpiexec has started was killed at once")
        data += part
    os.environ.update(json.loads(data))
    os.set_inheritable(link.detach(), True)
    if fds:
        os.set_inheritable(fds[0], True)
        os.environ["PMI_FD"] = str(fds[0])
