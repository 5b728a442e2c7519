"""A full-screen view in a terminal, as ``top`` has one: plain ANSI, keys without return, resizing.

``Screen`` gives back the terminal as it was, however the block ends. Knows terminals; nothing of
what is shown.
"""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import termios
import tty
from collections.abc import Sequence
from types import TracebackType

from .. import settings

_ENTER = "\x1b[?1049h\x1b[?25l"  # the other screen, no cursor
_LEAVE = "\x1b[?25h\x1b[?1049l"
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
PLAIN, BOLD, REVERSE, DIM, RED, YELLOW = "", "\x1b[1m", "\x1b[7m", "\x1b[2m", "\x1b[31m", "\x1b[33m"
_RESET = "\x1b[0m"
_ARROWS = {"\x1b[A": "up", "\x1b[B": "down", "\x1b[5~": "page up", "\x1b[6~": "page down",
           "\x1bOA": "up", "\x1bOB": "down"}  # fmt: skip
_KEYS = re.compile(r"\x1b[\[O][0-9;]*.|.", re.DOTALL)


class Screen:
    """Takes the terminal while the block runs."""

    def __init__(self, colour: bool | None = None) -> None:
        self.colour = settings.NO_COLOR.said() is None if colour is None else colour
        self._in, self._out = sys.stdin.fileno(), sys.stdout.fileno()
        self._ends = False
        self._typed: list[str] = []  # keys that nobody has asked for yet

    def __enter__(self) -> Screen:
        self._before = termios.tcgetattr(self._in)
        self._reader, writer = os.pipe()
        self._writer = writer
        for fd in (self._reader, writer):
            os.set_blocking(fd, False)
        numbers = (signal.SIGWINCH, signal.SIGTERM, signal.SIGHUP)
        self._handlers = {number: signal.signal(number, self._wake) for number in numbers}
        tty.setcbreak(self._in)
        self._write(_ENTER)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._write(_LEAVE)
        termios.tcsetattr(self._in, termios.TCSAFLUSH, self._before)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        os.close(self._reader)
        os.close(self._writer)

    def _wake(self, number: int, frame: object) -> None:
        self._ends = self._ends or number != signal.SIGWINCH
        try:
            os.write(self._writer, b"x")
        except OSError:  # it is awake
            pass

    def size(self) -> tuple[int, int]:
        """(columns, lines)."""
        try:
            columns, rows = os.get_terminal_size(self._out)
        except OSError:
            return 80, 24
        return columns or 80, rows or 24

    def show(self, lines: Sequence[tuple[str, str]]) -> None:
        """Draw (style, text) lines from the top; what does not fit is cut."""
        columns, rows = self.size()
        parts = [_HOME]
        for i, (style, text) in enumerate(lines[:rows]):
            text = "".join(c if c.isprintable() else "?" for c in text[:columns])
            if style == REVERSE:
                text = text.ljust(columns)
            if style and (self.colour or style in (REVERSE, BOLD)):
                text = f"{style}{text}{_RESET}"
            parts.append(text + ("" if style == REVERSE else _CLEAR_LINE))
            parts.append("\r\n" if i + 1 < min(rows, len(lines)) else "")
        self._write("".join(parts) + (_CLEAR_BELOW if len(lines) < rows else ""))

    def key(self, seconds: float) -> str:
        """The next key, at most so many seconds later: a character, or ``up``, ``down``, ``page
        up``, ``page down``; ``resize``; "q" at the end of the input; "" for none."""
        if self._typed:
            return self._typed.pop(0)
        ready, _, _ = select.select([self._in, self._reader], [], [], max(0.0, seconds))
        if self._ends:
            return "q"
        if self._reader in ready:
            os.read(self._reader, 512)
            return "resize"
        if not ready:
            return ""
        data = os.read(self._in, 512).decode("utf-8", "replace")
        self._typed += [_ARROWS.get(part, part) for part in _KEYS.findall(data)]
        return self._typed.pop(0) if data else "q"

    def _write(self, text: str) -> None:
        view = memoryview(text.encode("utf-8", "replace"))
        while view:
            view = view[os.write(self._out, view) :]


def is_terminal() -> bool:
    """Are both ends of this process a terminal that can be drawn on?"""
    return sys.stdin.isatty() and sys.stdout.isatty() and settings.TERMINAL.text() != "dumb"
