"""Where Python stands in every thread of a rank, without stopping it.

A rank registers Python's own fault handler for a real-time signal at its start (``listen``). The
handler writes into a nameless file of the rank's, from the signal itself: it needs no interpreter
lock, so a rank that is stuck in C, or whose lock somebody holds, answers, too. Who asks (``ask``)
reads that file through /proc, which the kernel allows the same user alone.

Knows processes and signals; no ranks.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass

from . import processes

SIGNAL = signal.SIGRTMAX - 3
_NAME = "disttrain-stacks"
_PATIENCE = 2.0  # seconds for a process to answer
_QUIET = 0.05  # after so long without a word an answer has ended
_QUIET_BUSY = 0.25  # ... of a process that may only have had no processor
_MOST = 4 << 20
_LAUNCHER = os.path.join(
    os.path.dirname(os.path.dirname(os.path.dirname(__file__))), "disttrain_launcher"
)
_OURS = rf"<frozen (runpy|importlib[^>]*)>|{re.escape(_LAUNCHER)}{os.sep}"
_STARTS = re.compile(rf'File "({_OURS}|[^"]*[/\\]bin[/\\]dtrun")')


def listen() -> int:
    """Answer from now on; the descriptor of the file where answers go."""
    fd = os.memfd_create(_NAME, os.MFD_CLOEXEC)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
    out = os.open(f"/proc/self/fd/{fd}", flags)
    os.close(fd)
    faulthandler.register(SIGNAL, file=out, all_threads=True, chain=False)
    return out


def ask(listening: Sequence[tuple[int, int]]) -> list[str]:
    """The stacks of processes that ``listen``, given as (pid, descriptor), or why there are none,
    in brackets. All are asked at once."""
    asked = [_asked(pid, fd) for pid, fd in listening]
    return [a if isinstance(a, str) else a.answer() for a in asked]


@dataclass
class _Asked:
    """A process that was sent the signal; ``fd``: the file where its answer goes."""

    pid: int
    fd: int
    before: int
    at: float

    def answer(self) -> str:
        """Wait for it."""
        try:
            size = self._answered()
            data = os.pread(self.fd, min(size - self.before, _MOST), self.before)
        except OSError as error:
            return f"(the process cannot be asked: {error})"
        finally:
            os.close(self.fd)
        if data:
            return data.decode("utf-8", "replace").rstrip()
        state, where = processes.usage(self.pid).state, processes.sleeps_in(self.pid)
        return f"(no answer within {_PATIENCE:g} s; state {state}{where and ', in ' + where})"

    def _answered(self) -> int:
        """Wait until the answer is there: the size of the file then."""
        while True:
            found = os.fstat(self.fd)
            silent = (time.time_ns() - found.st_mtime_ns) / 1e9
            quiet = _QUIET_BUSY if processes.usage(self.pid).state == "R" else _QUIET
            if found.st_size > self.before and silent > quiet:
                return found.st_size
            if time.monotonic() - self.at > _PATIENCE:
                return found.st_size
            time.sleep(0.005)


def _asked(pid: int, fd: int) -> _Asked | str:
    """Send the signal."""
    state = processes.usage(pid).state
    if state in ("", "Z", "X"):
        return "(the process is gone)"
    if state in ("T", "t"):
        return f"(the process is {processes.STATES[state]}: it can say nothing)"
    if not fd or not processes.catches(pid, SIGNAL):
        return "(the process does not answer: it is no Python, or has not begun yet)"
    try:
        answer = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        return f"(the process cannot be asked: {error})"
    if not os.readlink(f"/proc/self/fd/{answer}").startswith(f"/memfd:{_NAME}"):
        os.close(answer)
        return "(the program has closed the file that answers go to)"
    asked = _Asked(pid, answer, os.fstat(answer).st_size, time.monotonic())
    try:
        os.kill(pid, SIGNAL)
    except OSError as error:
        os.close(answer)
        return f"(the process cannot be asked: {error})"
    return asked


def of_program(text: str) -> str:
    """The stacks without the frames at their ends that have only started the program."""
    out: list[str] = []
    for stack in re.split(r"(?m)^(?=\S)", text):
        lines = stack.rstrip().splitlines()
        while len(lines) > 2 and _STARTS.search(lines[-1]):
            lines.pop()
        out += lines
    return "\n".join(out)
