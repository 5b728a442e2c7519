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
from . import session

PROMPT = "disttrain.debugger.prompt"  # loaded where a rank stops
SIGNAL = signal.SIGRTMAX - 4
MUTED_SLOT = "debugger.muted"  # of a rank that passes by its breakpoints


def listen() -> None:
    """Stop at ``breakpoint()`` and at the signal, from now on."""
    sys.breakpointhook = hook
    signal.signal(SIGNAL, _signalled)


def hook(*args: Any, **kwargs: Any) -> Any:
    """What Python's ``breakpoint()`` calls; ``breakpoint(2)`` stops rank 2 alone."""
    if settings.BREAKPOINT.text():  # the program's user wants another one, or none
        return sys.__breakpointhook__(*args, **kwargs)
    if context.current().slots.get(MUTED_SLOT):
        return None
    rank = kwargs.pop("rank", args[0] if len(args) == 1 else None)
    wrong = len(args) > 1 or set(kwargs) - {"header", "commands"}
    if wrong or not (rank is None or isinstance(rank, int)):
        raise TypeError(
            f"breakpoint() takes a rank, header= and commands= alone; {args} {kwargs} given"
        )
    if rank in (None, session.number()):
        importlib.import_module(PROMPT).stop_in(sys._getframe(1), **kwargs)
    return None


def _signalled(number: int, frame: FrameType | None) -> None:
    if frame is not None:
        stop(frame)


def stop(frame: FrameType) -> None:
    """Stop the calling thread now, in ``frame``: somebody has asked for it (``disttrain pdb``)."""
    prompt = importlib.import_module(PROMPT)
    prompt.stop_in(frame, prompt.STOP)


def stop_at_next_line(frame: FrameType | None) -> None:
    """Stop the calling thread when it comes to another line, in ``frame`` or below it."""
    prompt = importlib.import_module(PROMPT)

    def look(at: FrameType, event: str, arg: Any) -> Any:
        if event != "line" or sys.gettrace() is not look:
            return look if sys.gettrace() is look else None
        return prompt.stop_traced(at, prompt.STOP)

    while frame is not None:
        frame.f_trace = look
        frame = frame.f_back
    sys.settrace(look)


def post_mortem(error: BaseException) -> None:
    """Stop where ``error`` was raised."""
    importlib.import_module(PROMPT).post_mortem(error)
