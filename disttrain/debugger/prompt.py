"""Python's debugger in a rank: where it stops, what it has of its own, and how it lets go.

It stops at once, in the frame of the program that has called ``breakpoint()`` or that was
interrupted, and not in one of this package's. The terminal is the rank's until the program goes on
(``continue``); then tracing ends with it, unless breakpoints were set. Knows frames; where the
terminal comes from is ``session``'s.
"""

from __future__ import annotations

import bdb
import os
import pdb  # noqa: T100
import signal
import sys
import sysconfig
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from .. import context
from ..errors import DisttrainError
from . import session

_SLOT = "debugger.debuggers"  # of a rank: by process and thread
_OURS = ("disttrain", "disttrain_launcher")
# Modules that it does not stop in by itself: a step into a layer stops in the program's next line.
_NEVER = (*(f"{name}{more}" for name in _OURS for more in ("", ".*")), "runpy")
MAKER_SLOT = "debugger.maker"  # of a rank: what makes its debugger of a terminal and seconds
_STDLIB = sysconfig.get_paths()["stdlib"] + os.sep
_INSTALLED = ("site-packages", "dist-packages")
BREAKPOINT, POST_MORTEM = "breakpoint", "post-mortem"


class Quit(SystemExit):
    """Somebody has ended the rank in the debugger. No program catches it by accident."""

    def __init__(self, told: str) -> None:
        super().__init__(1)
        self.told = told


class Debugger(pdb.Pdb):
    """Of one thread of a rank. ``seconds``: how long nobody need sit at a terminal."""

    def __init__(self, terminal: session.Terminal, seconds: float = session.SECONDS) -> None:
        super().__init__(nosigint=True, skip=_NEVER)
        self.terminal, self.seconds = terminal, seconds
        me, self.rank = context.current(), session.number()
        self.prompt = f"(Pdb rank {self.rank}) "
        self.header = ""
        self._kind = BREAKPOINT
        self._held = self._over = self._at_prompt = self._listens = False
        self._sigint: Any = None
        me.at_end.append(lambda: self.leave("has ended its program"))

    # --- stopping -------------------------------------------------------------------------------

    def stop(self, frame: FrameType, kind: str = BREAKPOINT) -> bool:
        """Talk with people about ``frame``, whose program waits meanwhile. True: it is to be traced
        afterwards, which the caller begins as its last deed (``trace``)."""
        sys.settrace(None)  # else the debugger is traced itself
        self.reset()
        self._kind = kind
        self.botframe = _outermost(frame)
        self.interaction(frame, None)
        if self.quitting:
            raise self._quit()
        if self._over and not self.breaks:
            return False
        where: FrameType | None = frame
        while where is not None:
            where.f_trace = self.trace_dispatch
            where = None if where is self.botframe else where.f_back
        return True

    def trace(self) -> None:
        """Stop again where people have asked for it."""
        sys.settrace(self.trace_dispatch)

    def post_mortem(self, traceback: TracebackType) -> None:
        """Talk about what was raised. The program does not go on in any case."""
        self.reset()
        self._kind = POST_MORTEM
        self.botframe = None  # type: ignore[assignment]
        self.interaction(None, traceback)

    def interaction(self, frame: Any, traceback: Any) -> None:
        """One stop. Overrides ``pdb``'s."""
        self._over = False
        self.take(frame, traceback)
        self._at_prompt = True
        try:
            super().interaction(frame, traceback)
        finally:
            self._at_prompt = False
            if self._kind == POST_MORTEM:
                self.leave("ends with its error")
            elif self._over or self.quitting or not self.terminal.stays:
                self.leave("goes on" if not self.quitting else "was quit")

    def cmdloop(self, intro: Any = None) -> None:
        """Overrides ``cmd``'s: who is interrupted in it begins it anew (``pdb``)."""
        before, self._listens = self._listens, True
        try:
            super().cmdloop(intro)
        finally:
            self._listens = before

    def trace_dispatch(self, frame: FrameType, event: str, arg: Any) -> Any:
        """As of ``bdb``, but ``quit`` ends the rank."""
        try:
            found = super().trace_dispatch(frame, event, arg)
        except bdb.BdbQuit:
            raise self._quit() from None
        if event != "return" or frame is not self.botframe:
            return found
        self.set_continue()  # the program has ended: what comes is Python's own
        self.leave("has ended its program")
        return None

    def set_continue(self) -> None:
        super().set_continue()
        self._over = True

    def _quit(self) -> BaseException:
        told = f"rank {self.rank} was ended by `quit` in the debugger"
        if threading.current_thread() is not threading.main_thread() and self.terminal.stays:
            os.write(2, f"{told}, in a thread\n".encode())  # where SystemExit ends the thread alone
            os._exit(1)
        return Quit(told)

    # --- the terminal ---------------------------------------------------------------------------

    def take(self, frame: FrameType | None, traceback: TracebackType | None) -> None:
        """Have the terminal."""
        if self._held:
            return
        at, line = frame, frame.f_lineno if frame is not None else 0
        while traceback is not None and isinstance(traceback, TracebackType):
            at, line, traceback = traceback.tb_frame, traceback.tb_lineno, traceback.tb_next
        where = "" if at is None else f"{at.f_code.co_filename}:{line} in {at.f_code.co_name}"
        self.terminal.take(self._kind, where, self.seconds)
        self.stdin, self.stdout = sys.stdin, sys.stdout
        self._held = True
        if self.terminal.stays and threading.current_thread() is threading.main_thread():
            self._sigint = signal.signal(signal.SIGINT, self._interrupted)
        if self.header:
            self.message(self.header)
            self.header = ""

    def leave(self, how: str) -> None:
        """Give the terminal back."""
        if not self._held:
            return
        self._held = False
        self.terminal.leave(how)  # until then Ctrl-C comes here
        if self._sigint is not None:
            if signal.getsignal(signal.SIGINT) == self._interrupted:
                signal.signal(signal.SIGINT, self._sigint)
            self._sigint = None

    @property
    def talks(self) -> bool:
        """Is it at its prompt?"""
        return self._at_prompt

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        """Ctrl-C, which breaks off a command, or the program where that is in one."""
        if self._listens:
            raise KeyboardInterrupt
        if self._at_prompt or not self._held:  # it is about to listen, or the program goes on
            return
        if frame is not None and self.stop(user_frame(frame)):
            self.trace()

    # --- commands -------------------------------------------------------------------------------

    def do_quit(self, arg: str) -> bool:
        """q(uit) | exit

        End this rank, and with it the job.
        """
        self.set_quit()
        return True

    do_q = do_exit = do_quit

    def do_EOF(self, arg: str) -> bool:
        """EOF

        Ctrl-D, or the end of the terminal: as quit.
        """
        self.message("")
        return self.do_quit(arg)

    def do_run(self, arg: str) -> None:
        """run

        Not in a rank: the others go on with the job that there is.
        """
        self.error("a rank cannot be run anew from here; quit, and start the job again")

    do_restart = do_run


def debugger(seconds: float = session.SECONDS) -> Debugger:
    """The calling thread's, with what it was told before."""
    kept = context.current().slot(_SLOT, dict)
    key = os.getpid(), threading.get_ident()
    if key not in kept:
        make = context.current().slots.get(MAKER_SLOT, Debugger)
        kept[key] = make(session.find(), seconds)
    found: Debugger = kept[key]
    found.seconds = seconds
    return found


def stop_in(
    frame: FrameType,
    kind: str = BREAKPOINT,
    seconds: float = session.SECONDS,
    header: str | None = None,
    commands: Any = None,
    after: Callable[[], None] = lambda: None,
) -> None:
    """Stop in ``frame``, or in the program's frame below it where that is one of this package;
    ``after`` that, before the program goes on, call this."""
    found = debugger(seconds)
    if found.talks:  # an expression at the prompt has called us
        return
    if header is not None:
        found.header = header
    if commands is not None:
        found.rcLines.extend(commands)
    again = found.stop(user_frame(frame), kind)
    after()
    if again:
        found.trace()


def stop_at_program(frame: FrameType, kind: str, header: str) -> None:
    """Stop in the program's frame below ``frame``, or where it has none yet in its first line."""
    if _is_program(user_frame(frame)):
        stop_in(frame, kind, header=header)
        return

    def look(frame: FrameType, event: str, arg: Any) -> Any:
        if not _is_program(frame):
            return None
        if event != "line":
            return look
        return stop_traced(frame, kind, header)

    sys.settrace(look)


def stop_traced(frame: FrameType, kind: str, header: str | None = None) -> Any:
    """Stop in ``frame``, whose line is traced; how it is traced from then on."""
    sys.settrace(None)
    found = debugger()
    if header is not None:
        found.header = header
    if found.talks or not found.stop(user_frame(frame), kind):
        return None
    found.trace()
    return found.trace_dispatch


def _is_program(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    installed = any(f"{os.sep}{name}{os.sep}" in file for name in _INSTALLED)
    return not (installed or _is_ours(frame) or file.startswith((_STDLIB, "<")))


def post_mortem(error: BaseException) -> None:
    """Stop where ``error`` was raised: in the program, where it is one of our own that speaks for
    itself."""
    first = last = error.__traceback__
    if last is None:
        return
    kept: list[TracebackType] = []
    while last is not None:
        kept.append(last)
        last = last.tb_next
    while len(kept) > 1 and _is_ours(kept[0].tb_frame):
        kept.pop(0)
    if isinstance(error, DisttrainError):
        while len(kept) > 1 and _is_ours(kept[-1].tb_frame):
            kept.pop()
    for each in reversed(kept):  # the same without the frames that say nothing
        first = TracebackType(
            first if each is not kept[-1] else None, each.tb_frame, each.tb_lasti, each.tb_lineno
        )
    assert first is not None
    found = debugger()
    found.header = f"{type(error).__name__}: {error}"
    found.post_mortem(first)


def user_frame(frame: FrameType) -> FrameType:
    """``frame``, or the program's that has called it where it is this package's, or Python's on its
    behalf."""
    at: FrameType | None = frame
    while at is not None:
        below: FrameType | None = at
        while below is not None and below.f_code.co_filename.startswith((_STDLIB, "<frozen")):
            below = below.f_back
        if below is None or not _is_ours(below):
            return at
        while below is not None and _is_ours(below):
            below = below.f_back
        at = below
    return frame


def _outermost(frame: FrameType) -> FrameType:
    """The program's first frame."""
    found, at = frame, frame.f_back
    while at is not None and _package(at) != _OURS[1]:  # below the launcher's is its own command
        if not (_is_ours(at) or at.f_code.co_filename.startswith("<frozen")):
            found = at
        at = at.f_back
    return found


def _is_ours(frame: FrameType) -> bool:
    if "__name__" not in frame.f_globals and frame.f_code.co_filename == "<string>":
        return True  # ``interruption``, which is run so
    return _package(frame) in _OURS


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
