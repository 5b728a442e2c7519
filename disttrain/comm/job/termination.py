"""A rank is asked to end (SIGTERM), and is to know of it rather than to be gone.

Schedulers ask a job so before they end it: Slurm before the time is up or another job needs the
machine, Kubernetes before a node is drained. Who listens goes on, and finds in ``requested`` that
it was asked; what all ranks then do together is ``distributed.elastic``'s.

Knows signals and the rank's context.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

from ... import context

_SLOT = "comm.termination"


@dataclass
class _Request:
    """``process``: which listens."""

    process: int
    came: bool = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() == self.process:
            self.came = True
        else:  # a process that the rank has forked: it is asked as any other
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


def listen() -> bool:
    """Go on when SIGTERM comes, which ``requested`` tells from then on. False where that cannot be:
    the program has a handler of its own, or this is not its main thread."""
    slots = context.current().slots
    request = slots.get(_SLOT)
    if isinstance(request, _Request) and request.process == os.getpid():
        return True
    if threading.current_thread() is not threading.main_thread():
        return False
    handler: Any = signal.getsignal(signal.SIGTERM)
    if handler is not signal.SIG_DFL and not isinstance(handler, _Request):
        return False
    slots[_SLOT] = request = _Request(os.getpid())
    signal.signal(signal.SIGTERM, request)
    return True


def requested() -> bool:
    """Was this process asked to end, since it listens?"""
    request = context.current().slots.get(_SLOT)
    return isinstance(request, _Request) and request.came and request.process == os.getpid()


def for_helpers() -> Callable[..., Any] | int | None:
    """What a process that works for the rank does about SIGTERM: where the rank is to go on for a
    while, so is it (a scheduler signals all processes of a job)."""
    listening = isinstance(signal.getsignal(signal.SIGTERM), _Request)
    return signal.SIG_IGN if listening else signal.SIG_DFL
