"""How a rank comes to its debugger: ``breakpoint()``, and a signal of the launcher's.

A rank listens from its start, so nothing of the debugger itself is loaded here.
"""

from __future__ import annotations

import importlib
import signal
import sys
import threading
from types import FrameType
from typing import Any

from .. import context, settings
from . import session

PROMPT = "disttrain.debugger.prompt"  # loaded where a rank stops
SIGNAL = signal.SIGRTMAX - 4
ASKED = "disttrain pdb"  # why it stops
_INSIDE, _TRACED, _ANSWERED = "debugger.inside", "debugger.traced", "debugger.answered"  # slots
_FILE_RUNS_AS = "<string>"  # what ``sys.remote_exec`` is given
MUTED_SLOT = "debugger.muted"  # of a rank that passes by its breakpoints


def listen() -> None:
    """Stop at ``breakpoint()`` and at the signal, from now on."""
    sys.breakpointhook = hook
    signal.signal(SIGNAL, _signalled)


def hook(*args: Any, **kwargs: Any) -> Any:
    """What Python's ``breakpoint()`` calls; ``breakpoint(2)`` stops rank 2 alone."""
    if settings.BREAKPOINT.text():  # the program's user wants another one, or none
        return sys.__breakpointhook__(*args, **kwargs)  # noqa: T100
    if context.current().slots.get(MUTED_SLOT):
        return None
    rank = kwargs.pop("rank", args[0] if len(args) == 1 else None)
    wrong = len(args) > 1 or set(kwargs) - {"header", "commands"}
    if wrong or not (rank is None or isinstance(rank, int)):
        raise TypeError(
            f"breakpoint() takes a rank, header= and commands= alone; {args} {kwargs} given"
        )
    if rank in (None, session.number()):
        _prompt("stop_in", sys._getframe(1), **kwargs)
    return None


def _prompt(name: str, *args: Any, **kwargs: Any) -> Any:
    """Call a function of ``prompt``; nothing where this thread is in there already."""
    inside = context.current().slot(_INSIDE, set)
    me = threading.get_ident()
    if me in inside:
        return None
    inside.add(me)
    try:
        return getattr(importlib.import_module(PROMPT), name)(*args, **kwargs)
    finally:
        inside.discard(me)


# Who asks a rank to stop does so in two ways, where the first one takes long: by a file that Python
# runs at its next line, which then has it traced to that, and by a signal. One stop answers both.


def _signalled(number: int, frame: FrameType | None) -> None:
    if frame is None or frame.f_code.co_filename == _FILE_RUNS_AS:
        return  # that file is about to trace
    slots = context.current().slots
    if not slots.pop(_TRACED, False):
        slots[_ANSWERED] = hasattr(sys, "remote_exec")
    _prompt("stop_in", frame, ASKED)


def stop_at_next_line(frame: FrameType | None) -> None:
    """Stop the calling thread when it comes to another line, in ``frame`` or below it: somebody has
    asked for it (``disttrain pdb``)."""
    slots = context.current().slots
    if slots.pop(_ANSWERED, False):
        return
    slots[_TRACED] = True

    def look(at: FrameType, event: str, arg: Any) -> Any:
        if sys.gettrace() is not look:
            return None
        if event != "line":
            return look
        slots.pop(_TRACED, None)
        return _prompt("stop_traced", at, ASKED)

    while frame is not None:
        frame.f_trace = look
        frame = frame.f_back
    sys.settrace(look)


def post_mortem(error: BaseException) -> None:
    """Stop where ``error`` was raised."""
    _prompt("post_mortem", error)
