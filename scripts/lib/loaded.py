"""Run a command beside busy processes: loaded.py COUNT COMMAND ...

The order in which processes get on is another one on a busy machine, and what depends on it shows
there. The busy processes end with this one, however it ends (Linux: PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys

PR_SET_PDEATHSIG = 1


def spin(parent: int) -> None:
    """Use a core until the parent is gone."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    while os.getppid() == parent:  # it may have ended before it was asked for
        sum(range(100_000))
    os._exit(0)


def start(count: int) -> list[int]:
    """Fork ``count`` busy processes; their ids."""
    parent, children = os.getpid(), []
    for _ in range(count):
        child = os.fork()
        if child == 0:
            spin(parent)
        children.append(child)
    return children


def main(count: str, *command: str) -> int:
    busy = start(int(count))
    try:
        return subprocess.call(command)
    finally:
        for child in busy:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
