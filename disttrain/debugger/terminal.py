"""Somebody's terminal, joined to the pseudo-terminal of a rank in the debugger.

The terminal is set so that every key goes to the rank: Ctrl-C breaks off what the debugger or the
program does there, and not the job. Ctrl-\\ lets go. What the terminal was set to comes back
however that ends. Knows terminals and processes; no ranks, no debugger.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import struct
import termios
from typing import Any

LET_GO = 0x1C  # Ctrl-\
_INTERRUPT = 0x03  # Ctrl-C
_CHUNK = 1 << 14
_LFLAG, _CC = 3, 6


def usable(fd: int) -> int:
    """A descriptor of the caller's terminal for reading and writing, where ``fd`` is one; else -1.
    The caller closes it."""
    try:
        if not os.isatty(fd):
            return -1
        for path in ("/dev/tty", f"/proc/self/fd/{fd}"):
            with contextlib.suppress(OSError):
                return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        pass
    return -1


def in_front(fd: int) -> bool:
    """May this process read from its terminal now? (A job of a shell in the background may not.)"""
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:  # not our controlling terminal: nobody keeps us from it
        return True


class Joined:
    """The terminal ``fd`` and ``master``, the other side of which a rank has. ``pid``: who is to be
    interrupted at Ctrl-C; 0: nobody."""

    def __init__(self, fd: int, master: int, pid: int) -> None:
        self.fd, self.master, self.pid = fd, master, pid
        self.let_go = False
        self._before: list[Any] | None = termios.tcgetattr(fd)
        self._winch: Any = None
        os.set_blocking(master, False)
        self._set_size()
        with contextlib.suppress(ValueError):
            self._winch = signal.signal(signal.SIGWINCH, lambda *_: self._set_size())
        raw = termios.tcgetattr(fd)
        raw[0] &= ~(termios.ICRNL | termios.IXON | termios.INLCR | termios.IGNCR | termios.ISTRIP)
        raw[_LFLAG] &= ~(termios.ICANON | termios.ECHO | termios.ISIG | termios.IEXTEN)
        raw[_CC][termios.VMIN], raw[_CC][termios.VTIME] = 1, 0
        termios.tcsetattr(fd, termios.TCSANOW, raw)

    def _set_size(self) -> None:
        with contextlib.suppress(OSError):
            size = fcntl.ioctl(self.fd, termios.TIOCGWINSZ, b"\0" * 8)
            if any(struct.unpack("4H", size)[:2]):
                fcntl.ioctl(self.master, termios.TIOCSWINSZ, size)

    def from_terminal(self) -> bool:
        """Pass on what was typed; False where the terminal is gone."""
        try:
            data = os.read(self.fd, _CHUNK)
        except OSError:
            data = b""
        if not data:
            return False
        keys, end, _ = data.partition(bytes([LET_GO]))
        self.let_go = bool(end)
        with contextlib.suppress(OSError):  # who does not read for so long gets no more
            os.write(self.master, keys)
        if _INTERRUPT in keys and self.pid and _has_signals(self.master):
            with contextlib.suppress(OSError):
                os.kill(self.pid, signal.SIGINT)
        return True

    def from_rank(self) -> bool:
        """Show what the rank has said; False where its side is closed."""
        try:
            data = os.read(self.master, _CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return bool(data) and self.show(data)

    def show(self, data: bytes) -> bool:
        """Write it; False where the terminal is gone."""
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self.fd, view) :]
            except BlockingIOError:
                select.select([], [self.fd], [])
            except OSError:
                return False
        return True

    def close(self) -> None:
        """Show the last of it, and give the terminal back as it was."""
        if self._before is None:
            return
        while select.select([self.master], [], [], 0)[0] and self._said():
            continue
        restore(self.fd, self._before)
        self._before = None
        if self._winch is not None:
            signal.signal(signal.SIGWINCH, self._winch)
        os.close(self.master)

    def _said(self) -> bool:
        try:
            data = os.read(self.master, _CHUNK)
        except OSError:
            return False
        return bool(data) and self.show(data)


def _has_signals(master: int) -> bool:
    """Does the other side take Ctrl-C for a signal, and not for a key?"""
    try:
        return bool(termios.tcgetattr(master)[_LFLAG] & termios.ISIG)
    except termios.error:
        return False


def settings_of(fd: int) -> list[Any] | None:
    """What a terminal is set to; None for one that is gone."""
    try:
        return termios.tcgetattr(fd)
    except termios.error:
        return None


def restore(fd: int, before: list[Any]) -> None:
    """Set a terminal to what it was. A process in the background may, too."""
    old = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTOU])
    try:
        termios.tcsetattr(fd, termios.TCSANOW, before)
    except termios.error:
        pass
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)
