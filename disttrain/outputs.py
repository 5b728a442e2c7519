"""Outputs of a command of ours, which ends quietly when nobody reads them.

Knows descriptors; no jobs.
"""

from __future__ import annotations

import array
import contextlib
import errno
import fcntl
import os
import select
import signal
import stat
import sys
import termios
import time
from collections.abc import Callable

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
UNHEARD = 128 + signal.SIGPIPE  # exit code of who ends because nobody reads its output


def is_heard(fd: int) -> bool:
    """Is there still somebody who may read what is written to ``fd``?"""
    poll = select.poll()
    poll.register(fd, 0)
    return not any(event & select.POLLERR for _, event in poll.poll(0))


def command(main: Callable[[], int], name: str) -> int:
    """Run ``main`` as the command ``name``: its exit code, or that of ``unwritten``."""
    try:
        try:
            return main()
        finally:
            if sys.stdout is not None:  # it may have been closed
                sys.stdout.flush()
    except OSError as error:
        return unwritten(error, name)


def flush() -> None:
    """Write what is in the buffers of stdout and stderr, before a fork: it would be there twice."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            if stream is not None:
                stream.flush()


def unwritten(error: OSError, name: str) -> int:
    """The exit code of the command ``name``, which ``error`` has ended: where nobody reads its
    output any more, it ends quietly, as commands do that SIGPIPE ends; where that cannot be
    written, it says so. Raises what is about something else: no disk can be full behind a pipe."""
    heard = is_heard(1) and is_heard(2)
    if isinstance(error, BrokenPipeError) and not heard:
        code = UNHEARD
    elif error.errno in _FULL and error.filename is None and (_keeps(1) or _keeps(2)):
        put(f"{name}: the output is not complete: {error.strerror or error}\n")
        code = 1
    else:
        raise error
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)  # for what is still in buffers
    os.close(null)
    return code


def _keeps(fd: int) -> bool:
    """Does what is written to ``fd`` stay somewhere?"""
    try:
        mode = os.fstat(fd).st_mode
    except OSError:
        return False
    return not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd))


def write_all(fd: int, data: bytes, path: str | os.PathLike) -> None:
    """Write ``data`` to ``fd``, which is ``path``; an error says so."""
    rest = memoryview(data)
    try:
        while rest:  # a second turn happens only on a full disk or a signal
            rest = rest[os.write(fd, rest) :]
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(path)) from None


def drain(fd: int, patience: float = 1.0) -> None:
    """Wait until whoever reads the pipe ``fd`` has taken all that was written, for so many seconds:
    one who ends a job by another way than the pipe does not look for more."""
    until, left = time.monotonic() + patience, array.array("i", [0])
    with contextlib.suppress(OSError):
        while stat.S_ISFIFO(os.fstat(fd).st_mode) and time.monotonic() < until:
            fcntl.ioctl(fd, termios.FIONREAD, left)
            if not left[0] or not is_heard(fd):
                return
            time.sleep(0.002)


def put(text: str, fd: int = 2, patience: float = 1.0) -> None:
    """Write ``text`` at once, whatever becomes of it: words of the launcher's own are no reason to
    fail. Who does not read for so many seconds misses them."""
    data, until = memoryview(text.encode(errors="replace")), time.monotonic() + patience
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:
            if time.monotonic() > until:
                return
            time.sleep(0.005)
        except OSError:
            return
