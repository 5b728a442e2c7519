"""How a rank comes to its debugger: ``breakpoint()``, and a signal of the launcher's.

A rank listens from its start, so nothing of the debugger itself is loaded here.
"""

from __future__ import annotations

import importlib
import signal
import sys
from types import FrameType
from typing import Any

from .. import context, settings

PROMPT = "disttrain.debugger.prompt"  # loaded where a rank stops
SIGNAL = signal.SIGRTMAX - 4
MUTED_SLOT = "debugger.muted"  # of a rank that passes by its breakpoints


def listen() -> None:
    """Stop at ``breakpoint()`` and at the signal, from now on."""
    sys.breakpointhook = hook
    signal.signal(SIGNAL, _signalled)


def hook(*args: Any, **kwargs: Any) -> Any:
    """What Python's ``breakpoint()`` calls."""
    if settings.BREAKPOINT.text():  # the program's user wants another one, or none
        return sys.__breakpointhook__(*args, **kwargs)
    if context.current().slots.get(MUTED_SLOT):
        return None
    prompt = importlib.import_module(PROMPT)
    if args or set(kwargs) - {"header", "commands"}:
        raise TypeError(f"breakpoint() takes header= and commands= alone; {args} {kwargs} given")
    return prompt.stop_in(sys._getframe(1), **kwargs)


def _signalled(number: int, frame: FrameType | None) -> None:
    if frame is not None:
        stop(frame)


def stop(frame: FrameType | None = None) -> None:
    """Stop the calling thread now: somebody has asked for it (``disttrain pdb``)."""
    prompt = importlib.import_module(PROMPT)
    prompt.stop_in(frame or sys._getframe(1), prompt.STOP)


def post_mortem(error: BaseException) -> None:
    """Stop where ``error`` was raised."""
    importlib.import_module(PROMPT).post_mortem(error)
