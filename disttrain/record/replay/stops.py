"""Where a replay opens the debugger: before a step, an operation, or a call, at the first
difference, at an exception. Knows frames of Python; no recordings."""

from __future__ import annotations

import bdb
import os
import pdb  # noqa: T100  (it is what this is for)
import re
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

from ... import context
from ...errors import ConfigError

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_UNTIL = re.compile(r"step:(?P<step>\d+)|op:(?P<op>\w+)(#(?P<n>\d+))?|call:(?P<call>\d+)")


class Until(NamedTuple):
    """Where to stop: ``what`` is "step", "op" or "call"; ``number``: which one of these, from 0 for
    steps, from 1 for others; ``name``: of the operation."""

    what: str
    number: int
    name: str = ""


def parse(text: str) -> Until | None:
    """``step:3``, ``op:softmax``, ``op:all_reduce#2``, ``call:17``; nothing: None."""
    if not text:
        return None
    found = _UNTIL.fullmatch(text)
    if found is None:
        raise ConfigError(
            f"replay: --until {text!r} given; step:3, op:NAME, op:NAME#2 or call:17 is needed"
        )
    if found["step"]:
        return Until("step", int(found["step"]))
    if found["call"]:
        return Until("call", int(found["call"]))
    return Until("op", int(found["n"] or 1), found["op"])


class Stops:
    """When to stop, and what for. ``debug``: whether the debugger is opened at differences and
    exceptions, too."""

    def __init__(self, until: Until | None = None, debug: bool = False) -> None:
        self.until, self.debug = until, debug or until is not None
        self.stopped = False  # the debugger is open
        self.reached = False
        self.paused = 0.0  # seconds that it was
        self.opened = open_with(self)
        self._seen = 0

    def step(self, number: int) -> None:
        """Step ``number`` begins."""
        if self.until == ("step", number, ""):
            self._stop(f"step {number} begins")

    def operation(self, name: str) -> None:
        """An operation is about to run."""
        until = self.until
        if until is not None and until.what == "op" and until.name == name:
            self._seen += 1
            if self._seen == until.number:
                self._stop(f"before {name} (number {self._seen})")

    def call(self, number: int, verb: str) -> None:
        """Call ``number`` (from 0) is about to be answered."""
        if self.until == ("call", number + 1, ""):
            self._stop(f"before call {number + 1}: {verb}")
        self.operation(verb)

    def difference(self) -> None:
        """Something differs here."""
        if self.debug:
            self._stop("here")

    def error(self, error: BaseException) -> None:
        """The program has raised."""
        if self.debug:
            pdb.post_mortem(error.__traceback__)

    def _stop(self, why: str) -> None:
        frame = program_frame(sys._getframe())
        if self.stopped or frame is None or threading.current_thread() is not _main():
            return
        self.reached = True
        self.opened(frame, why)

    def pause(self, seconds: float) -> None:
        """The debugger was open for so long."""
        self.paused += seconds


class Pdb(pdb.Pdb):
    """The debugger; while its prompt is open the clock of the rank stands."""

    stops: Stops

    def stop_in(self, frame: FrameType) -> None:
        """Open it in ``frame``, at the line that runs there now, and go on as it says."""
        self.reset()
        outer: FrameType | None = frame
        while outer is not None:
            outer.f_trace = self.trace_dispatch
            self.botframe, outer = outer, outer.f_back
        self.set_next(frame)
        self.interaction(frame, None)
        if self.quitting:
            raise bdb.BdbQuit
        if self.stoplineno != -1 or self.breaks:  # else it is to go on to the end
            sys.settrace(self.trace_dispatch)

    def interaction(self, *args: Any, **kwargs: Any) -> None:
        began, self.stops.stopped = time.monotonic(), True
        try:
            super().interaction(*args, **kwargs)
        finally:
            self.stops.stopped = False
            self.stops.pause(time.monotonic() - began)


class PausedWaiter(context.Waiter):
    """Waits by a clock that stands while the debugger is open."""

    stops: Stops

    def now(self) -> float:
        return time.monotonic() - self.stops.paused


def open_with(stops: Stops) -> Callable[[FrameType, str], None]:
    """What opens pdb in a frame of the program."""

    def opened(frame: FrameType, why: str) -> None:
        sys.stderr.write(f"replay: stopped: {why}\n")
        sys.stderr.flush()
        debugger = Pdb()
        debugger.stops = stops
        debugger.stop_in(frame)

    return opened


def program_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame outside of this package."""
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return frame


def site_of(text: str) -> str:
    """The line in the text of a call, or the one of the program that runs."""
    if " at " in text:
        return text.rpartition(" at ")[2]
    frame = program_frame(sys._getframe())
    return "?" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _main() -> threading.Thread:
    return threading.main_thread()


__all__ = [
    "Pdb",
    "PausedWaiter",
    "Stops",
    "Until",
    "open_with",
    "parse",
    "program_frame",
    "site_of",
]
