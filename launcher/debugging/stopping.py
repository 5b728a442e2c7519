"""Lets a rank stop in the debugger, wherever it is.

Since Python 3.14 the interpreter of a rank can be asked to run a file at its next line
(``sys.remote_exec``, of the same user, by its parent; a program or a machine may forbid it). Else,
or where that takes long, since the rank is in C code, a signal does so.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import disttrain.debugger
from disttrain.debugger.stopping import SIGNAL
from disttrain.watch.processes import catches

_FILE = os.path.join(os.path.dirname(disttrain.debugger.__file__), "interruption.py")


def stop(pid: int, insist: bool) -> str:
    """Let process ``pid`` stop; why it cannot, else nothing. ``insist``: it was asked before."""
    if not catches(pid, SIGNAL):
        return f"process {pid} does not listen: it is no Python, or has not begun yet"
    execute: Callable[[int, str], None] | None = getattr(sys, "remote_exec", None)
    if execute is not None and not insist:
        try:
            execute(pid, _FILE)
        except (OSError, RuntimeError, ValueError):  # it is forbidden: the signal is not
            pass
        else:
            return ""
    try:
        os.kill(pid, SIGNAL)
    except OSError as error:
        return f"process {pid}: {error.strerror}"
    return ""
