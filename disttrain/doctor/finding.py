"""One line of the doctor's report, and how its probes ask: files, libraries, child processes."""

from __future__ import annotations

import ctypes
import importlib.metadata
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

CHILD_SECONDS = 20.0


@dataclass(frozen=True)
class Finding:
    """One line of the report. ``state`` is ``ok``, ``missing`` (optional) or ``problem``.

    ``enables`` and ``install`` say, for what is not ok, what it would make possible and how.
    """

    group: str
    name: str
    state: str
    value: str
    enables: str = ""
    install: str = ""


def ok(group: str, name: str, value: str) -> Finding:
    return Finding(group, name, "ok", value)


def guarded(probe: Callable[[], Iterator[Finding]]) -> list[Finding]:
    try:
        return list(probe())
    except Exception as error:  # a probe of a foreign part may fail in any way: report, go on
        name = probe.__name__.strip("_").replace("_", " ")
        return [Finding("Problems", name, "problem", f"{type(error).__name__}: {error}")]


def child(program: str) -> str:
    """The last line that ``program`` prints in a fresh interpreter, or its error's last line."""
    return first_line([sys.executable, "-P", "-c", program], last=True)


def first_line(command: list[str], last: bool = False) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=CHILD_SECONDS, errors="replace"
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {CHILD_SECONDS:.0f} s"
    except OSError as error:
        return str(error)
    if done.returncode < 0:
        return f"ended with code {done.returncode}"
    lines = [line.strip() for line in (done.stdout or done.stderr).splitlines() if line.strip()]
    if not lines:
        return f"ended with code {done.returncode} and no word" if done.returncode else ""
    return lines[-1 if last else 0]


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def library(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def size(num_bytes: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if num_bytes < 1024:
            return f"{num_bytes:.0f} {unit}"
        num_bytes /= 1024
    return f"{num_bytes:.1f} GiB"
