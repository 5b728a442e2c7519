"""What a trial must leave behind: nothing (H1 processes, H2 files, H3 listening ports), and one
report that says what has happened (H4)."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

MARK = "DISTTRAIN_FAULT_TRIAL"  # in the environment of all that a trial starts
FOREIGN = ("sem.", "psm_", "torch_", "mpich_", "ucx_", "vader_")  # of programs that may run beside
_LISTENS = "0A"
SOON = 0.1  # seconds for the kernel to take away what was killed


def marked(mark: str) -> list[int]:
    """The processes that a trial has started, however they have detached themselves."""
    found, wanted = [], f"{MARK}={mark}".encode()
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and wanted in Path("/proc", entry, "environ").read_bytes():
                found.append(int(entry))
        except OSError:
            continue
    return found


def shared_memory() -> set[str]:
    """Names of segments there (folders are somebody's who wants a fast disk)."""
    files = (entry.name for entry in os.scandir("/dev/shm") if not entry.is_dir())
    return {name for name in files if not name.startswith(FOREIGN)}


def listening(pids: list[int]) -> dict[str, str]:
    """inode -> address of the sockets on which these processes listen."""
    held: set[str] = set()
    tables: list[str] = []
    for pid in pids:
        try:
            for fd in os.listdir(f"/proc/{pid}/fd"):
                held.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
            tables += [Path(f"/proc/{pid}/net/{name}").read_text() for name in ("tcp", "tcp6")]
        except OSError:
            continue
    return {i: where for i, where in _listeners(tables).items() if f"socket:[{i}]" in held}


def _listeners(tables: list[str]) -> dict[str, str]:
    rows = [line.split() for text in tables for line in text.splitlines()[1:]]
    return {row[9]: row[1] for row in rows if row[3] == _LISTENS}


class Census:
    """What there was before a trial, and what there is after it."""

    def __init__(self, mark: str, folder: Path) -> None:
        self._mark, self._folder = mark, folder
        self._shared = shared_memory()
        self._listened: dict[str, str] = {}

    def note_ports(self) -> None:
        """While the job runs."""
        self._listened |= listening(marked(self._mark))

    def complaints(self, known: set[str], seconds: float = SOON) -> list[str]:
        """``known``: names of files that may be left in the trial's folder, in which also lies what
        the job took for the system's folder of temporary files. ``seconds``: to let go of the
        rest."""
        until = time.monotonic() + seconds
        while (left := marked(self._mark)) and time.monotonic() < until:
            time.sleep(0.005)
        found = [f"H1: process {pid} is left: {_program(pid)}" for pid in left]
        found += [f"H2: /dev/shm/{name} is left" for name in shared_memory() - self._shared]
        extra = {path.name for path in self._folder.iterdir()} - known
        found += [f"H2: {name} is left" for name in sorted(extra)]
        tables = [Path(f"/proc/net/{name}").read_text() for name in ("tcp", "tcp6")]
        there = self._listened.keys() & _listeners(tables).keys()
        return found + [f"H3: {self._listened[inode]} is listened on" for inode in sorted(there)]


def _program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()[:120]
    except OSError:
        return "?"


def report_of(log_dir: Path, code: int) -> tuple[dict, list[str]]:
    """H4: what ``report.json`` says of the first failure, and what it does not say."""
    path = log_dir / "report.json"
    if not path.exists():
        return {}, ["H4: there is no report.json"]
    report = json.loads(path.read_text())
    root = report.get("root_cause") or {}
    wrong = [f"H4: report.json does not say {name}" for name in ("rank", "pid", "cause")
             if root.get(name) in (None, "")]  # fmt: skip
    if not report.get("host"):
        wrong.append("H4: report.json does not say the host")
    if report.get("exitcode") != code:
        wrong.append(f"H4: report.json says exit code {report.get('exitcode')}, it was {code}")
    return root, wrong
