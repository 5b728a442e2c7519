"""Can another thread of this process still do something? Asked before a rank is called stuck.

A rank that waits may be freed by another of its threads, so it is stuck only when none of them can
go on. A thread cannot go on by itself when it waits, without a deadline, in one of Python's own
waits (``join``, ``Condition``, ``Event``, ``Queue``, ``Future``): somebody else must wake it. A
thread that sits in the standard library below nothing but libraries (a progress bar's monitor, a
writer, a server) is parked at its work and calls no collective. Every other thread counts as one
that computes.

Knows frames and files; no ranks.
"""

from __future__ import annotations

import concurrent.futures.thread as futures_thread
import os
import sys
import sysconfig
import threading
from types import FrameType

_PATHS = sysconfig.get_paths()
_STDLIB = (_PATHS["stdlib"] + os.sep, _PATHS["platstdlib"] + os.sep)
_SITE = (_PATHS["purelib"] + os.sep, _PATHS["platlib"] + os.sep)
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARIES = (*_STDLIB, *_SITE, _PACKAGE, "<frozen")


def others_may_move(waiting: set[int]) -> bool:
    """Whether any thread but those of ``waiting`` (idents) may still do something by itself."""
    return any(
        ident not in waiting and not (_awaits_others(frame) or _parked(frame))
        for ident, frame in sys._current_frames().items()
    )


def _awaits_others(frame: FrameType) -> bool:
    """Is its innermost frame a wait without a deadline, which only another thread can end?"""
    code = frame.f_code
    if code.co_filename == threading.__file__:
        names = frame.f_locals
        return "timeout" in names and names["timeout"] in (None, -1)
    return code is futures_thread._worker.__code__  # type: ignore[attr-defined]


def _parked(frame: FrameType | None) -> bool:
    """Does it sit in the standard library, with no program's own code on its stack?"""
    top = frame.f_code.co_filename if frame is not None else ""
    if not top.startswith((*_STDLIB, "<frozen")) or top.startswith(_SITE):
        return False
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_LIBRARIES):
            return False
        frame = frame.f_back
    return True
