"""Outputs of the ranks: pipes in, lines with a prefix out, files where asked."""

from __future__ import annotations

import fcntl
import os
import termios
import tty

_CHUNK = 1 << 16


class Stream:
    """One rank's stdout or stderr. ``sink`` is our own descriptor, or None when not shown."""

    def __init__(self, prefix: str, sink: int | None, path: str | None) -> None:
        self.prefix = prefix.encode()
        self.sink = sink
        self.file = None if path is None else _open_log(path)
        self.at_start = True
        self.reader, self.writer = _terminal() if sink is not None and os.isatty(sink) else os.pipe()
        os.set_blocking(self.reader, False)

    def child_end(self) -> int:
        return self.writer

    def started(self) -> None:
        """The rank has its end; drop ours, so that its exit ends the stream."""
        os.close(self.writer)
        self.writer = -1

    def pump(self) -> bool:
        """Pass on what has come; False at the end."""
        try:
            data = os.read(self.reader, _CHUNK)
        except BlockingIOError:
            return True
        except OSError:  # a terminal whose other side has gone
            data = b""
        if not data:
            return False
        if self.file is not None:
            _write_all(self.file, data)
        if self.sink is not None:
            _write_all(self.sink, self._prefixed(data))
        return True

    def drain(self) -> None:
        """Pass on all that is there, without waiting for more."""
        while True:
            try:
                data = os.read(self.reader, _CHUNK)
            except OSError:
                return
            if not data:
                return
            if self.file is not None:
                _write_all(self.file, data)
            if self.sink is not None:
                _write_all(self.sink, self._prefixed(data))

    def close(self) -> None:
        if self.sink is not None and not self.at_start:
            _write_all(self.sink, b"\n")
            self.at_start = True
        for fd in (self.reader, self.writer, -1 if self.file is None else self.file):
            if fd >= 0:
                os.close(fd)
        self.reader = self.writer = -1
        self.file = None

    def _prefixed(self, data: bytes) -> bytes:
        """The prefix at the start of every line (and after a carriage return)."""
        if not self.prefix:
            return data
        out = []
        for line in data.replace(b"\r\n", b"\n").splitlines(keepends=True):
            if self.at_start and line not in (b"\n", b"\r"):
                out.append(self.prefix)
            out.append(line)
            self.at_start = line.endswith((b"\n", b"\r"))
        return b"".join(out)


def _open_log(path: str) -> int:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def _terminal() -> tuple[int, int]:
    """A pseudo-terminal, so that a progress bar knows that somebody looks."""
    reader, writer = os.openpty()
    tty.setraw(writer)
    try:
        size = fcntl.ioctl(2, termios.TIOCGWINSZ, b"\0" * 8)
        fcntl.ioctl(writer, termios.TIOCSWINSZ, size)
    except OSError:
        pass
    return reader, writer


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            continue
        except OSError:  # nobody reads any more
            return
