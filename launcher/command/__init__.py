"""The command ``dtrun`` from its first moment: what comes before anything else is loaded.

Ctrl-C ends it quietly until ``front`` passes signals on, its standard descriptors are there, and it
ends quietly when who reads its output has gone.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import Any


def main() -> int:
    """The exit code for the shell."""
    signal.signal(signal.SIGINT, _interrupted)
    open_standard()
    try:
        try:
            return int(importlib.import_module("disttrain_launcher.command.dispatch").main())
        finally:
            sys.stdout.flush()
    except OSError as error:
        return int(importlib.import_module("disttrain.outputs").unwritten(error, "dtrun"))


def _interrupted(number: int, frame: object) -> None:
    os._exit(128 + number)


def open_standard() -> None:
    """Let those of the three standard descriptors that are closed (``>&-``) lead nowhere: whatever
    is opened next would get their numbers, and be written to."""
    while (fd := os.open(os.devnull, os.O_RDWR)) < 3:
        os.set_inheritable(fd, True)
    os.close(fd)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
