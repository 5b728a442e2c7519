"""How long a process lives: no longer than the one that it works for, in whatever way that ends.

Knows Linux; knows nothing of ranks and jobs.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import signal
import threading

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int | bytes) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")


def rename(name: str) -> None:
    """How ps and top show this process, and killall finds it; 15 bytes at most."""
    _prctl(_PR_SET_NAME, name.encode()[:15])


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when ``parent`` (its parent) ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the call
        os._exit(128 + signal.SIGKILL)


def die_with(process: int, is_child: bool) -> None:
    """Kill this process when ``process`` ends, whatever this one does then.

    ``is_child``: was this one forked by the main thread of ``process``? The kernel's signal comes
    at the end of the *thread* that forked, which may be a short-lived one, and never for a
    process that is no parent: then a thread here waits for the process.
    """
    if is_child:
        die_with_parent(process)
        return
    try:
        pidfd = os.pidfd_open(process)
    except ProcessLookupError:
        os._exit(128 + signal.SIGKILL)
    threading.Thread(target=_watch, args=(pidfd,), daemon=True).start()


class Leash:
    """Process groups that the kernel kills when this process ends, in whatever way.

    ``die_with_parent`` reaches a child, not what that one has started. Here each group's leader has
    a descriptor of its own at a pipe whose other end is this process alone: when that is closed,
    the kernel sends the signal that was asked for (fcntl(2), F_SETSIG) to the whole group, even if
    nobody is left who could do anything.
    """

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()

    def put_on(self) -> None:
        """In a child of this process that leads its process group. What it becomes by an exec stays
        on the leash."""
        os.close(self._writer)
        fd = os.open(f"/proc/self/fd/{self._reader}", os.O_RDONLY | os.O_NONBLOCK)
        os.close(self._reader)
        fcntl.fcntl(fd, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
        os.set_inheritable(fd, True)

    def close(self) -> None:
        """Kill what is left of the groups."""
        os.close(self._reader)
        os.close(self._writer)


def end_of(process: int) -> int:
    """A descriptor at which the end of a process ``shows``: a pidfd, or for one that somebody else
    has collected already, something that is always ready."""
    try:
        return os.pidfd_open(process)
    except ProcessLookupError:
        return os.eventfd(1, os.EFD_CLOEXEC)


def shows(fd: int, seconds: float | None = 0.0) -> bool:
    """Is there something to read at ``fd`` within as many seconds (None: for ever)? At a pidfd: has
    the process ended? Unlike a sentinel of ``multiprocessing``, that shows as soon as it has,
    though other processes may hold copies of what it had open."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(None if seconds is None else max(0.0, seconds) * 1000))


def _watch(pidfd: int) -> None:
    shows(pidfd, None)
    os.kill(os.getpid(), signal.SIGKILL)
