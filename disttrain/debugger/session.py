"""A rank's end of the debugger's terminal: asked of the launcher, which hands it over.

A rank makes a pseudo-terminal and sends the launcher the side where people sit. Once somebody does,
it takes the other side for its standard descriptors, so that Python's line editor, ``input()`` and
what the program prints go there, and gives it back when the program goes on. Meanwhile the clock of
the job stands still, so what is waited for here is counted on the machine's own clock.

Knows descriptors and the launcher's words; not what is said on the terminal.
"""

from __future__ import annotations

import fcntl
import os
import socket
import sys
import termios
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from .. import context, settings
from ..errors import CommError, WaitTimeout
from . import wire

SECONDS = 3600.0  # that nobody need sit at a terminal
TERMINAL_SLOT = "debugger.terminal"  # of a rank: a function that makes its ``Terminal``
_STANDARD, _LFLAG = (0, 1, 2), 3
_GIVEN_BACK = 1.0  # ... for the terminal to be as it was
_GRACE = 5.0  # seconds for the launcher to say that time is up


class Terminal(Protocol):
    """Where a debugger talks with people."""

    stays: bool  # in hand until the program goes on; else from one prompt to the next

    def take(self, kind: str, where: str, seconds: float) -> None:
        """Have it. Raises ``WaitTimeout`` where nobody sits at one for so long."""

    def leave(self, how: str) -> None:
        """Give it back. ``how`` the program goes on."""


def number() -> int:
    """The calling rank's; of a process that a rank has forked, that one's."""
    told = settings.RANK.text()
    return context.current().rank or (int(told) if told.isdigit() else 0)


def find() -> Terminal:
    """The calling rank's: of the launcher, or else that of the process."""
    made: Callable[[], Terminal] | None = context.current().slots.get(TERMINAL_SLOT)
    if made is not None:
        return made()
    name = settings.DEBUGGER.text()
    return Handed(name) if name else Own()


@dataclass
class _Streams:
    """What ``sys.stdin``, ``sys.stdout`` and ``sys.stderr`` were, and are meanwhile."""

    before: tuple[Any, Any, Any]
    now: tuple[Any, Any, Any]

    @classmethod
    def replace(cls) -> _Streams:
        """Let them be text on the standard descriptors."""
        before = sys.stdin, sys.stdout, sys.stderr
        _flush(before[1:])
        made = tuple(
            open(fd, mode, encoding="utf-8", errors="replace", buffering=1, closefd=False)  # noqa: SIM115
            for fd, mode in zip(_STANDARD, "rww", strict=True)
        )
        sys.stdin, sys.stdout, sys.stderr = made
        return cls(before, made)  # type: ignore[arg-type]

    def restore(self) -> None:
        """Put back what the program has not replaced meanwhile."""
        _flush((sys.stdout, sys.stderr, *self.now[1:]))
        for name, old, new in zip(
            ("stdin", "stdout", "stderr"), self.before, self.now, strict=True
        ):
            if getattr(sys, name) is new:
                setattr(sys, name, old)


def _flush(streams: tuple[Any, ...]) -> None:
    for stream in streams:
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except (OSError, ValueError):  # its owner's to find
            continue


class Handed:
    """A terminal that the launcher hands over, which listens at ``name``."""

    stays = True

    def __init__(self, name: str) -> None:
        self._name = name
        self._wire: wire.Wire | None = None
        self._kept: list[int] = []  # the descriptors of before; -1: there was none
        self._streams: _Streams | None = None

    def take(self, kind: str, where: str, seconds: float) -> None:
        if self._wire is not None:
            return
        made = wire.Wire(socket.socket(fileno=_above(wire.connect(self._name).sock.detach())))
        try:
            master, slave = _opened()
            alone = threading.current_thread()
            asked = made.send(
                "debug", [master], rank=number(), pid=os.getpid(), what=kind, where=where,
                seconds=seconds, interrupts=alone is threading.main_thread(),
            )  # fmt: skip
            os.close(master)
            try:
                self._await(made, seconds if asked else 0.0)
                self._wire = made
                self._put(slave)
            finally:
                os.close(slave)
        except BaseException:
            made.close()
            self._wire = None
            raise

    def _await(self, made: wire.Wire, seconds: float) -> None:
        """Until somebody sits at the other side."""
        until = time.monotonic() + seconds + _GRACE
        while True:
            for message, _ in made.receive():
                if message["kind"] == "granted":
                    return
                if message["kind"] != "late":
                    raise CommError(f"debugger: {message.get('text', 'it was refused')}")
                raise _late(seconds)
            if not made.open:
                raise CommError("debugger: the job's launcher is gone")
            if not made.wait(until - time.monotonic()):
                raise _late(seconds)

    def _put(self, slave: int) -> None:
        """Let the standard descriptors lead there."""
        _flush((sys.stdout, sys.stderr))
        self._kept = []
        for fd in _STANDARD:
            try:
                self._kept.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _STANDARD[-1] + 1))
            except OSError:  # the program has closed it
                self._kept.append(-1)
        for fd in _STANDARD:
            os.dup2(slave, fd)
        self._streams = _Streams.replace()

    def leave(self, how: str) -> None:
        made, self._wire = self._wire, None
        if made is None:
            return
        if self._streams is not None:
            self._streams.restore()
            self._streams = None
        for fd, kept in zip(_STANDARD, self._kept, strict=True):
            if kept < 0:
                os.close(fd)
            else:
                os.dup2(kept, fd)
                os.close(kept)
        self._kept = []
        if made.send("leave", how=how):
            made.wait(_GIVEN_BACK)  # what the program says next is to come after what was said here
        made.close()


def _opened() -> tuple[int, int]:
    """A pseudo-terminal. What the rank says at Ctrl-C is not thrown away with what it said before:
    nobody waits until the terminal has heard of the key."""
    master, slave = map(_above, os.openpty())
    found = termios.tcgetattr(slave)
    found[_LFLAG] |= termios.NOFLSH
    termios.tcsetattr(slave, termios.TCSANOW, found)
    return master, slave


def _above(fd: int) -> int:
    """The same, where no standard descriptor is: a program may have closed those."""
    if fd > _STANDARD[-1]:
        return fd
    other = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _STANDARD[-1] + 1)
    os.close(fd)
    return other


def _late(seconds: float) -> WaitTimeout:
    return WaitTimeout(
        f"breakpoint: nobody came to a terminal within {seconds:g} s. `disttrain attach JOB RANK` "
        "does so; timeout_s= of distributed.breakpoint says how long there is for it"
    )


class Own:
    """The process's own, where no launcher of ours has started it."""

    stays = True

    def __init__(self) -> None:
        self._before: tuple[Any, ...] = ()

    def take(self, kind: str, where: str, seconds: float) -> None:
        if self._before or not self._is_shut():
            return
        try:  # a child of ``multiprocessing`` has none
            stdin: Any = open("/dev/stdin", encoding="utf-8", errors="replace")  # noqa: SIM115
        except OSError:
            return
        self._before, sys.stdin = (sys.stdin, stdin), stdin

    @staticmethod
    def _is_shut() -> bool:
        stream = sys.stdin
        try:
            return stream is None or stream.closed or os.path.samefile(stream.name, os.devnull)
        except (AttributeError, OSError, TypeError, ValueError):
            return False

    def leave(self, how: str) -> None:
        if self._before and sys.stdin is self._before[1]:
            sys.stdin = self._before[0]
        self._before = ()
