"""Where Python stands in every thread of a rank, without stopping it.

A rank registers Python's own fault handler for a real-time signal at its start (``listen``). The
handler writes into a nameless file of the rank's, from the signal itself: it needs no interpreter
lock, so a rank that is stuck in C, or whose lock somebody holds, answers, too. Who asks (``ask``)
opens that file through /proc, which the kernel allows the same user alone.

Knows processes and signals; no ranks.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import time

from . import processes

SIGNAL = signal.SIGRTMAX - 3
_PATIENCE = 2.0  # seconds for a process to answer
_QUIET = 0.05  # after so long without a word an answer has ended
_QUIET_BUSY = 0.25  # ... of a process that may only have had no processor
_MOST = 4 << 20
_LAUNCHER = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(__file__))), "launcher")
_STARTS = re.compile(
    rf'File "(<frozen runpy>|{re.escape(_LAUNCHER)}{os.sep}|[^"]*[/\\]bin[/\\]dtrun")'
)


def listen() -> int:
    """Answer from now on; the descriptor of the file where answers go."""
    fd = os.memfd_create("disttrain-stacks", os.MFD_CLOEXEC)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
    out = os.open(f"/proc/self/fd/{fd}", flags)
    os.close(fd)
    faulthandler.register(SIGNAL, file=out, all_threads=True, chain=False)
    return out


def ask(pid: int, fd: int) -> str:
    """The stacks of a process that ``listen``s there, or why there are none, in brackets."""
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
    try:
        if not os.readlink(f"/proc/{pid}/fd/{fd}").startswith("/memfd:disttrain-stacks"):
            return "(the program has closed the file that answers go to)"
        before = os.fstat(answer).st_size
        os.kill(pid, SIGNAL)
        size = _answered(pid, answer, before)
        data = os.pread(answer, min(size - before, _MOST), before)
    except OSError as error:
        return f"(the process cannot be asked: {error})"
    finally:
        os.close(answer)
    if not data:
        where = processes.sleeps_in(pid)
        return f"(no answer within {_PATIENCE:g} s; state {state}{where and ', in ' + where})"
    return data.decode("utf-8", "replace").rstrip()


def of_program(text: str) -> str:
    """The stacks without the frames at their ends that have only started the program."""
    out: list[str] = []
    for stack in re.split(r"(?m)^(?=\S)", text):
        lines = stack.rstrip().splitlines()
        while len(lines) > 2 and _STARTS.search(lines[-1]):
            lines.pop()
        out += lines
    return "\n".join(out)


def _answered(pid: int, fd: int, before: int) -> int:
    """Wait until the answer is there: the size of the file then."""
    start = last = time.monotonic()
    size = before
    while True:
        time.sleep(0.005)
        now, new = time.monotonic(), os.fstat(fd).st_size
        if new != size:
            size, last = new, now
        quiet = _QUIET_BUSY if processes.usage(pid).state == "R" else _QUIET
        if (size > before and now - last > quiet) or now - start > _PATIENCE:
            return size
