"""Where Python stands in every thread of a rank, without stopping it and without a signal to it.

A rank starts a thread of its own that waits at a pipe (``listen``). Who asks (``ask``) writes a
byte into the pipe; the thread takes the interpreter's lock for a moment and writes all stacks into
a nameless file of the rank's. Pipe and file are opened through /proc, which the kernel allows the
same user alone. Where the thread does not get the lock in time, somebody holds it in C code and no
stack changes: then a signal is sent to that thread alone, in which Python's own fault handler
writes the stacks without the lock. No other thread ever sees a signal, so no system call of the
program's is interrupted.

Knows processes and signals; no ranks.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import faulthandler
import os
import re
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from ..comm.job.threads import bystanders
from . import processes

SIGNAL = signal.SIGRTMAX - 3
_NAME = "disttrain-stacks"
_POLITE = 1.0  # seconds in which a process may answer by itself
_PATIENCE = 3.0  # ... in which it has to, in one way or the other
_QUIET = 0.05  # after so long without a word an answer has ended
_QUIET_BUSY = 0.25  # ... of a process that may only have had no processor
_GONE = 0.1  # seconds for a thread that has ended to be gone
_MOST = 4 << 20
_HEAD = 64  # bytes at the beginning of the file, which say where the pipe is
_HERE = os.path.abspath(__file__)
_LAUNCHER = os.path.join(
    os.path.dirname(os.path.dirname(os.path.dirname(__file__))), "disttrain_launcher"
)
_OURS = rf"<frozen (runpy|importlib[^>]*)>|{re.escape(_LAUNCHER)}{os.sep}"
_STARTS = re.compile(rf'File "({_OURS}|[^"]*[/\\]bin[/\\]dtrun")')
_LISTENS = re.compile(rf'File "{re.escape(_HERE)}", line \d+ in _serve')


def listen() -> int:
    """Answer from now on; the descriptor of the file where answers go."""
    fd = os.memfd_create(_NAME, os.MFD_CLOEXEC)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
    out = os.open(f"/proc/self/fd/{fd}", flags)
    os.close(fd)
    faulthandler.register(SIGNAL, file=out, all_threads=True, chain=False)
    listener = _Listener(out)
    listener.start()
    # A process with threads had better not fork (Python 3.12 warns of it), so it has none then.
    os.register_at_fork(
        before=listener.stop, after_in_parent=listener.go_on, after_in_child=listener.forget
    )
    return out


class _Listener:
    """The thread that answers, which Python's ``threading`` does not count."""

    def __init__(self, out: int) -> None:
        self.out = out
        self.asked, self.asks = os.pipe()
        self.thread = 0  # its number; 0: there is none
        self._ident = 0  # the same as Python counts
        self.paused = False  # for a fork
        self._begun = threading.Event()
        pipe = os.readlink(f"/proc/self/fd/{self.asked}")
        os.write(out, f"{self.asked} {pipe}".ljust(_HEAD - 1).encode() + b"\n")

    def start(self) -> None:
        self._begun.clear()
        with contextlib.suppress(RuntimeError):  # no thread may be started: nobody answers
            _thread.start_new_thread(self._serve, ())
            self._begun.wait()

    def stop(self) -> None:
        thread, self.paused = self.thread, bool(self.thread)
        if not thread:
            return
        os.write(self.asks, b"q")
        until = time.monotonic() + _GONE
        while os.path.exists(f"/proc/self/task/{thread}") and time.monotonic() < until:
            time.sleep(0)

    def go_on(self) -> None:
        if self.paused:
            self.start()

    def forget(self) -> None:
        """This is a process that the rank has forked."""
        self.thread, self.paused = 0, False
        bystanders.discard(self._ident)

    def _serve(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals() - {SIGNAL})
        self.thread, self._ident = _thread.get_native_id(), _thread.get_ident()
        bystanders.add(self._ident)
        self._begun.set()
        with contextlib.suppress(OSError, ValueError):  # the program has closed a descriptor
            while b"q" not in os.read(self.asked, 64):
                faulthandler.dump_traceback(self.out, all_threads=True)
        bystanders.discard(self._ident)
        self.thread = 0


def ask(listening: Sequence[tuple[int, int]]) -> list[str]:
    """The stacks of processes that ``listen``, given as (pid, descriptor), or why there are none,
    in brackets. All are asked at once."""
    asked = [_asked(pid, fd) for pid, fd in listening]
    return [a if isinstance(a, str) else a.answer() for a in asked]


@dataclass
class _Asked:
    """A process that was asked; ``fd``: the file where its answer goes."""

    pid: int
    fd: int
    before: int
    at: float
    signalled: bool = False

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
            return _once(data.decode("utf-8", "replace").rstrip())
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
            waited = time.monotonic() - self.at
            if waited > _PATIENCE:
                return found.st_size
            if waited > _POLITE and found.st_size == self.before and not self.signalled:
                self.signalled = True
                _signal(self.pid)
            time.sleep(0.005)


def _once(text: str) -> str:
    """The stacks without those of a thread that come again: one who has asked before is answered
    late."""
    stacks = {stack.partition("(most")[0]: stack for stack in reversed(_split(text))}
    return "".join(reversed(stacks.values())).rstrip()


def _split(text: str) -> list[str]:
    return re.split(r"(?m)^(?=\S)", text)


def _asked(pid: int, fd: int) -> _Asked | str:
    """Ask it."""
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
        _write(pid, os.pread(answer, _HEAD, 0).decode())
    except (OSError, ValueError) as error:
        os.close(answer)
        return f"(the process cannot be asked: {error})"
    return asked


def _write(pid: int, where: str) -> None:
    """Write into the pipe at which its thread waits."""
    number, name = where.split()
    path = f"/proc/{pid}/fd/{number}"
    if os.readlink(path) != name:
        raise ValueError("the program has closed the pipe at which it is asked")
    pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.write(pipe, b"?")
    finally:
        os.close(pipe)


def _signal(pid: int) -> None:
    """Send the signal to the thread that waits for it, and to no other one."""
    tell = getattr(ctypes.CDLL(None), "tgkill", None)
    thread = processes.thread_for(pid, SIGNAL)
    if tell is not None and thread:
        tell(pid, thread, int(SIGNAL))


def of_program(text: str) -> str:
    """The stacks without the thread that answers, and without the frames at their ends that have
    only started the program."""
    out: list[str] = []
    for stack in _split(text):
        lines = stack.rstrip().splitlines()
        if any(map(_LISTENS.search, lines)):
            continue
        while len(lines) > 2 and _STARTS.search(lines[-1]):
            lines.pop()
        out += lines
    return "\n".join(out)
