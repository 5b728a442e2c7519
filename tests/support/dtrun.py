"""Run dtrun on a small script as a user would, and look at what it leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


@dataclass
class Ended:
    """What a finished dtrun gave."""

    code: int
    out: str
    err: str


class Job:
    """dtrun on ``script``, started; its processes carry a mark by which they are found again."""

    def __init__(
        self,
        folder: Path,
        script: str,
        *flags: str,
        args: tuple = (),
        before: tuple = (),
        **settings: Any,
    ) -> None:
        """``before``: words of a command that starts another one; an environment variable that is
        None is not set."""
        self.folder = folder
        self.mark = f"{os.getpid()}.{time.monotonic_ns()}"
        (folder / "script.py").write_text(script)
        env = {k: v for k, v in os.environ.items() if k not in UNWANTED}
        env |= {"DTRUN_TEST_MARK": self.mark, "TMPDIR": str(folder)}
        env |= settings.pop("env", {})
        env = {k: v for k, v in env.items() if v is not None} | {"PYTHONPATH": str(ROOT)}
        settings.setdefault("preexec_fn", _as_a_shell_does)
        program = ["script.py"] if "-m" not in flags else ["script"]
        command = [*before, sys.executable, "-m", "disttrain_launcher", *flags, *program, *args]
        self.process = subprocess.Popen(
            command, cwd=folder, env=env, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **settings,
        )  # fmt: skip

    def wait(self, timeout: float = 30) -> Ended:
        try:
            out, err = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, err = self.process.communicate()
            raise AssertionError(f"dtrun did not end\n{out}\n{err}") from None
        return Ended(self.process.returncode, out, err)

    def wait_for(self, *names: str) -> None:
        """Until the script has made these files."""
        until(lambda: all((self.folder / name).exists() for name in names), f"{names}")

    def launcher(self) -> dict[str, int]:
        """Its processes by their names; those that have ended are missing."""
        found, pid = {"front": self.process.pid}, self.process.pid
        for name in ("warden", "agent"):
            children = below(pid)
            if not children:
                break
            found[name] = pid = children[0]
        return found

    def processes(self) -> list[int]:
        """What still runs of all that this job has started, however it has detached itself."""
        found, mark = [], f"DTRUN_TEST_MARK={self.mark}".encode()
        for entry in os.listdir("/proc"):
            try:
                if entry.isdigit() and mark in Path("/proc", entry, "environ").read_bytes():
                    found.append(int(entry))
            except OSError:
                continue
        return found

    def all_gone(self) -> None:
        until(lambda: not self.processes(), "all processes to end")


def _as_a_shell_does() -> None:
    """What the tests were told to ignore (by nohup, or in the background of a script) is no matter
    of the job's."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def below(pid: int) -> list[int]:
    """Children of a process."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
            return [int(word) for word in f.read().split()]
    except OSError:
        return []


UNWANTED = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "OMP_NUM_THREADS"}


def until(ready: Callable[[], bool], what: str, timeout: float = 20.0) -> None:
    deadline = time.monotonic() + timeout
    while not ready():
        assert time.monotonic() < deadline, f"waited {timeout} s for {what}"
        time.sleep(0.005)


def dtrun(folder: Path, script: str, *flags: str, timeout: float = 30, **settings: Any) -> Ended:
    """Run to the end, and check that nothing is left."""
    job = Job(folder, script, *flags, **settings)
    ended = job.wait(timeout)
    assert job.processes() == []
    return ended
