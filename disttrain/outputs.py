"""Outputs of a command of ours: they are there, and the command ends quietly when nobody reads them.

Knows descriptors; no jobs.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable

UNHEARD = 128 + signal.SIGPIPE  # exit code of who ends because nobody reads its output


def open_standard() -> None:
    """Let those of the three standard descriptors that are closed (``>&-``) lead nowhere: whatever
    is opened next would get their numbers, and be written to."""
    while (fd := os.open(os.devnull, os.O_RDWR)) < 3:
        os.set_inheritable(fd, True)
    os.close(fd)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False, buffering=1)  # noqa: SIM115


def is_heard(fd: int) -> bool:
    """Is there still somebody who may read what is written to ``fd``?"""
    poll = select.poll()
    poll.register(fd, 0)
    return not any(event & select.POLLERR for _, event in poll.poll(0))


def command(main: Callable[[], int], name: str) -> int:
    """Run ``main`` as a command: the exit code. It ends quietly when its reader has gone, as
    commands do that SIGPIPE ends, and says so where its output could not be written."""
    open_standard()
    try:
        try:
            return main()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        if is_heard(1) and is_heard(2):
            raise  # another one's
        code = UNHEARD
    except OSError as error:
        if not _is_stuck():
            raise
        put(f"{name}: the output is not complete: {error.strerror}\n")
        code = 1
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)  # what is still in buffers
    os.close(null)
    return code


def _is_stuck() -> bool:
    """Can stdout not be flushed?"""
    try:
        sys.stdout.flush()
    except OSError:
        return True
    return False


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
