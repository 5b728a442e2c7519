"""A command at a pseudo-terminal, as somebody who types sees it."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import sys
import termios
import time
from pathlib import Path

PATIENCE = 30.0  # seconds; nothing here is a measurement


class Typist:
    """``words`` run in ``folder`` at a terminal of their own; ``said`` is all that it shows."""

    def __init__(self, words: list[str], folder: Path, **env: str) -> None:
        self.said, self._seen = "", 0
        root = str(Path(__file__).resolve().parents[2])
        env = {**os.environ, "PYTHONPATH": root, "TERM": "dumb", "OMP_NUM_THREADS": "1", **env}
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                os.chdir(folder)
                os.execvpe(words[0], words, env)
            finally:
                os._exit(127)
        self.settings = termios.tcgetattr(self.fd)
        self.status: int | None = None

    def expect(self, pattern: str, seconds: float = PATIENCE) -> re.Match[str]:
        """Wait for what follows what was expected before."""
        until = time.monotonic() + seconds
        while True:
            found = re.search(pattern, self.said[self._seen :])
            if found is not None:
                self._seen += found.end()
                return found
            left = until - time.monotonic()
            if left <= 0 or not self._read(left):
                raise AssertionError(f"{pattern!r} did not come; after it:\n"
                                     f"{self.said[: self._seen]}\n--- then ---\n"
                                     f"{self.said[self._seen :]}")  # fmt: skip

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self.fd], [], [], seconds)
        try:
            data = os.read(self.fd, 1 << 16) if ready else b""
        except OSError:  # its other side is closed
            return False
        self.said += data.decode(errors="replace").replace("\r", "")
        return bool(data)

    def type(self, text: str) -> None:
        """Press these keys."""
        os.write(self.fd, text.encode())

    def line(self, text: str) -> None:
        self.type(text + "\n")

    def ends(self, seconds: float = PATIENCE) -> int:
        """Read to the end: the exit code (negative: the signal)."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and self._read(until - time.monotonic()):
            continue
        if self.status is None:
            while True:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    break
                assert time.monotonic() < until, f"it does not end:\n{self.said}"
                time.sleep(0.01)
            self.status = os.waitstatus_to_exitcode(status)
        return self.status

    @property
    def is_as_before(self) -> bool:
        """Is the terminal set to what it was?"""
        return termios.tcgetattr(self.fd) == self.settings

    def close(self) -> None:
        """Let nothing of it be left."""
        if self.status is None:
            os.kill(self.pid, signal.SIGTERM)
            try:
                self.ends(20)
            finally:
                if self.status is None:
                    os.kill(self.pid, signal.SIGKILL)
                    os.waitpid(self.pid, 0)
        os.close(self.fd)


def started(folder: Path, script: str, *flags: str, **env: str) -> Typist:
    """``dtrun`` of a script at a terminal."""
    (folder / "train.py").write_text(script)
    words = [sys.executable, "-m", "disttrain_launcher", *flags, "train.py"]
    return Typist(words, folder, XDG_RUNTIME_DIR=str(folder), **env)


def disttrain(folder: Path, *words: str) -> Typist:
    """Another command of the same user, at a terminal of its own."""
    return Typist([sys.executable, "-m", "disttrain.cli", *words], folder,
                  XDG_RUNTIME_DIR=str(folder))  # fmt: skip
