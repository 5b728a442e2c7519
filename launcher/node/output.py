"""Outputs of the ranks: pipes in, lines with a prefix out, files where asked.

``Console`` is our own stdout or stderr, ``Stream`` one of a rank's. Lines of different ranks never
mix: when a rank speaks while another one's line is still open (a progress bar), the line is ended
first. A console that nobody reads (a pager) must not stop the agent, so what it does not take
waits in memory, and beyond a megabyte the ranks' pipes are left to fill.
"""

from __future__ import annotations

import fcntl
import os
import select
import stat
import struct
import termios
import time
import tty

from disttrain import settings

from ..options.environment import FORCE_COLOR
from ..worker.logs import Log, Sieve

_CHUNK = 1 << 16
_AT_ONCE = 4096  # a pipe that is writable takes so many bytes without blocking (PIPE_BUF)
_MAX_BACKLOG = 1 << 20
_PATIENCE = 0.1
_LONG = 1 << 18  # bytes of a line that is not held back any longer, and may be ended by others
_EMPTY = (b"\n", b"\r", b"\r\n")
_LAST = 1024  # bytes that are remembered of what came last
_COLORS = (
    36,
    33,
    32,
    35,
    34,
    96,
    93,
    92,
    95,
    94,
)  # of prefixes, by rank: none is the red of errors


class Console:
    """A descriptor of ours to which several streams write."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._backlog = bytearray()
        self._open: Stream | None = None  # whose line is not ended yet
        self.gone = False  # has who read it gone?
        self._held = False  # somebody else has the terminal
        self._lost, self._why = 0, ""
        self._poll = select.poll()
        try:
            always_ready = stat.S_ISREG(os.fstat(fd).st_mode)
        except OSError:  # closed: nobody wants to hear
            always_ready, self.fd = True, -1
        self._at_once = _CHUNK if always_ready else _AT_ONCE
        if not always_ready:
            self._poll.register(fd, select.POLLOUT)

    @property
    def behind(self) -> bool:
        """Is something waiting to be taken?"""
        return bool(self._backlog) and not self._held

    @property
    def full(self) -> bool:
        return len(self._backlog) > _MAX_BACKLOG

    def say(self, stream: Stream, data: bytes) -> None:
        """Add ``data``, which ``stream`` has made ready."""
        if self._open is not None and self._open is not stream:
            self._backlog += b"\n"
            self._open.at_start = True
        self._backlog += data
        self._open = None if data.endswith(b"\n") else stream
        self.flush()

    def end_line(self, stream: Stream) -> None:
        if self._open is stream:
            self.say(stream, b"\n")

    def hold(self, on: bool) -> None:
        """Keep what is said meanwhile, where this is a terminal."""
        self._held = on and os.isatty(self.fd)
        self.flush()

    def flush(self, until: float = 0.0) -> None:
        """Write what the other side takes now, or until that time of the monotonic clock."""
        while self._backlog and not self._held:
            if self._at_once != _CHUNK and not self._poll.poll(_milliseconds(until)):
                return
            try:
                n = os.write(self.fd, self._backlog[: self._at_once])
            except BlockingIOError:
                return
            except BrokenPipeError:
                self.gone, n = True, len(self._backlog)
            except OSError as error:  # a full disk, a terminal that was closed
                n, self._why = len(self._backlog), error.strerror or str(error)
                self.lose(n)
            del self._backlog[:n]

    def lose(self, nbytes: int) -> None:
        self._lost += nbytes

    def told(self) -> str:
        """What is to be said of it at the end, once; nothing where all was taken."""
        self.lose(len(self._backlog))
        self._backlog.clear()
        lost, self._lost = self._lost, 0
        if not lost or self.gone:
            return ""
        return f"{lost} bytes of the ranks' output are lost: {self._why or 'nobody has read them'}"


def _milliseconds(until: float) -> float:
    return max(0.0, until - time.monotonic()) * 1000


def consoles() -> dict[int, Console]:
    """Ours, by descriptor; one for both where both lead to the same place."""
    out, err = Console(1), Console(2)
    try:
        same = os.path.sameopenfile(1, 2)
    except OSError:
        same = False
    return {1: out, 2: out if same else err}


class Stream:
    """One rank's stdout or stderr. ``console``: where it is shown, if it is."""

    def __init__(
        self,
        prefix: str,
        console: Console | None,
        log: Log | None = None,
        rank: int = 0,
        sieve: Sieve | None = None,
    ) -> None:
        self.prefix = colored(prefix, rank).encode() if is_colored(console) else prefix.encode()
        self.console = console
        self.log, self.sieve = log, sieve
        self.at_start = True  # of a line, on the console
        self.last = b""  # what came last
        self.tail, self.tail_since = b"", 0.0  # the beginning of a line whose end has not come
        shown_to_somebody = console is not None and os.isatty(console.fd)
        self.reader, self.writer = _terminal(len(prefix)) if shown_to_somebody else os.pipe()
        os.set_blocking(self.reader, False)

    def started(self) -> None:
        """The rank has its end; drop ours, so that its exit ends the stream."""
        os.close(self.writer)
        self.writer = -1

    @property
    def held_up(self) -> bool:
        """Must it wait until the console has caught up?"""
        return self.console is not None and self.console.full

    def pump(self) -> bool:
        """Pass on what has come; False at the end."""
        try:
            data = os.read(self.reader, _CHUNK)
        except BlockingIOError:
            return True
        except OSError:  # a terminal whose other side has gone
            return False
        if not data:
            return False
        self.last = (self.last + data)[-_LAST:]
        if self.log is not None:
            self.log.write(data)
        if self.sieve is not None:
            self.sieve.take(data)
        if self.console is not None:
            self._show(data)
        return True

    def _show(self, data: bytes) -> None:
        """Show whole lines; hold back the beginning of the next one (see ``release``)."""
        before, data = self.tail, self.tail + data
        end = data.rfind(b"\n") + 1
        if b"\r" in data[end:] or len(data) - end > _LONG:  # a progress bar, or endless
            end = len(data)
        self.tail = data[end:]
        if end or not before:
            self.tail_since = time.monotonic()
        if end:
            self._say(data[:end])

    def _say(self, data: bytes) -> None:
        assert self.console is not None
        self.console.say(self, self._prefixed(data))

    def release(self, patience: float = _PATIENCE) -> None:
        """Show a line without end that has been held back long enough (a prompt, say)."""
        if self.tail and time.monotonic() - self.tail_since >= patience:
            data, self.tail = self.tail, b""
            self._say(data)

    def finish(self, until: float) -> str:
        """Pass on what is still there (its writers are gone) and let go of everything. What the
        console does not take until then is lost. What is to be said of its file."""
        while _readable(self.reader) and self.pump():
            if self.held_up:
                assert self.console is not None
                self.console.flush(until)
                if self.held_up:
                    self.console.lose(len(self.tail))
                    self.console, self.tail = None, b""  # nobody reads; the file gets it all
        if self.console is not None:
            self.release(0.0)
            self.console.end_line(self)
            self.console.flush(until)
        for fd in (self.reader, self.writer):
            if fd >= 0:
                os.close(fd)
        self.reader = self.writer = -1
        if self.sieve is not None:
            self.sieve.finish()
        log, self.log = self.log, None
        return "" if log is None else log.close()

    def _prefixed(self, data: bytes) -> bytes:
        """The prefix at the start of every line (and after a carriage return)."""
        if not self.prefix:
            self.at_start = data.endswith((b"\n", b"\r"))
            return data
        plain = data.endswith(b"\n") and not data.startswith(b"\n")
        if plain and b"\r" not in data and b"\n\n" not in data:  # as most outputs are
            first, self.at_start = self.prefix if self.at_start else b"", True
            return first + data[:-1].replace(b"\n", b"\n" + self.prefix) + b"\n"
        out = []
        for line in data.splitlines(keepends=True):
            if self.at_start and line not in _EMPTY:
                out.append(self.prefix)
            out.append(line)
            self.at_start = line.endswith((b"\n", b"\r"))
        return b"".join(out)


def _readable(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return any(event & select.POLLIN for _, event in poll.poll(0))


def is_colored(console: Console | None) -> bool:
    """Are prefixes coloured? On terminals, unless NO_COLOR says no, or FORCE_COLOR yes elsewhere
    (see no-color.org and force-color.org)."""
    if settings.NO_COLOR.said():
        return False
    if FORCE_COLOR.text():
        return True
    return console is not None and os.isatty(console.fd) and settings.TERMINAL.said() != "dumb"


def colored(prefix: str, rank: int) -> str:
    return f"\x1b[{_COLORS[rank % len(_COLORS)]}m{prefix}\x1b[0m" if prefix else ""


def _terminal(narrower: int) -> tuple[int, int]:
    """A pseudo-terminal, so that a progress bar knows that somebody looks, and how wide it may be
    behind a prefix of so many characters."""
    reader, writer = os.openpty()
    tty.setraw(writer)
    try:
        size = fcntl.ioctl(2, termios.TIOCGWINSZ, b"\0" * 8)
        rows, columns, *pixels = struct.unpack("4H", size)
        columns = max(columns - narrower, min(columns, 1))
        fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, *pixels))
    except OSError:
        pass
    return reader, writer
