"""Can another thread of this process still do something? Asked before a rank is called stuck.

A rank that waits may be freed by another of its threads, so it is stuck only when none of them can
go on. A thread cannot go on by itself when it waits, without a deadline, in one of Python's own
waits (``join``, ``Condition``, ``Event``, ``Queue``, ``Future``): somebody else must wake it. A
library's own thread that sits in such a wait, or at a socket (a progress bar's monitor, a writer, a
server), is parked at its work and calls no collective. Every other thread counts as one that
computes, and so does a timer; but one that has said that it is a bystander does not.

Knows frames and files; no ranks.
"""

from __future__ import annotations

import os
import sys
import threading
from types import FrameType

_STDLIB = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_INSTALLED = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
# Where threads wait. Modules that nobody has loaded need not be loaded here: nobody is in them.
_WAITS = ("threading", "queue", "selectors", "socket", "multiprocessing.connection")

bystanders: set[int] = set()  # idents of this process' threads that free nobody, by their own word


def others_may_move(waiting: set[int]) -> bool:
    """Whether any thread but those of ``waiting`` (idents) may still do something by itself."""
    return any(
        ident not in waiting
        and ident not in bystanders
        and not (_awaits_others(frame) or _parked(frame))
        for ident, frame in sys._current_frames().items()
    )


def _awaits_others(frame: FrameType) -> bool:
    """Is its innermost frame a wait without a deadline, which only another thread can end?"""
    code = frame.f_code
    if code.co_filename == threading.__file__:
        names = frame.f_locals
        return "timeout" in names and names["timeout"] in (None, -1)
    futures = sys.modules.get("concurrent.futures.thread")
    return futures is not None and code is futures._worker.__code__


def _parked(frame: FrameType | None) -> bool:
    """Does it wait, below a library's code and with no program's own code on its stack?"""
    waits = {getattr(sys.modules.get(name), "__file__", None) for name in _WAITS}
    if frame is None or frame.f_code.co_filename not in waits:
        return False
    library = False
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_PACKAGE) or any(part in file for part in _INSTALLED):
            library = True
        elif not file.startswith((_STDLIB, "<frozen")):
            return False
        frame = frame.f_back
    return library
