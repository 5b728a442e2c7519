"""A run of simulated ranks in a process that is forked from this one: it sees nothing of what
another has left, and one that hangs outside the simulation (in a lock of its own, say) is ended.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

PATIENCE = 120.0  # real seconds that a run may take


class Lost(Exception):
    """The process has given no result. ``kind``: "Hung" or "Died"."""

    def __init__(self, kind: str, text: str) -> None:
        self.kind = kind
        super().__init__(text)


def in_child(work: Callable[[], Any], shown: bool = False) -> Any:
    """What ``work()`` returns in a forked process. ``shown``: with its outputs. Raises ``Lost``."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _run(work, shown, writer)
    os.close(writer)
    try:
        data = _read(reader, time.monotonic() + PATIENCE)
    finally:
        os.close(reader)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    if data is None:
        raise Lost("Hung", f"it has not ended within {PATIENCE:g} s")
    if not data:
        raise Lost("Died", f"its process ended with status {status}")
    return pickle.loads(data)  # from our own forked child


def _read(fd: int, deadline: float) -> bytes | None:
    """What comes until the end; None where that does not come in time."""
    data = bytearray()
    while select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(fd, 1 << 16)
        if not part:
            return bytes(data)
        data += part
    return None


def _run(work: Callable[[], Any], shown: bool, writer: int) -> None:
    """In the forked process: run, send what came of it, end."""
    code = 1
    try:
        if not shown:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
        sys.breakpointhook = lambda *args, **kwargs: None  # nobody sits there
        found = work()
        sys.stdout.flush()
        sys.stderr.flush()
        with os.fdopen(writer, "wb") as file:
            pickle.dump(found, file)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
