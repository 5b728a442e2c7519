"""``sys.stdout`` and ``sys.stderr`` of simulated ranks: whose line it is, the calling thread says.

Whole lines appear with the rank's prefix, as those of processes do. Knows ranks and streams; not
what runs.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Collection
from typing import Any, TextIO

from disttrain.outputs import UNHEARD, put

from ..worker.logs import Log

# What ends a line on a terminal. (``str.splitlines`` knows more: form feeds, marks of Unicode.)
_LINE = re.compile(r"[^\r\n]*(?:\r\n|[\r\n])|[^\r\n]+")
_EMPTY = ("\n", "\r", "\r\n")


class RankStream(io.TextIOBase):
    """One of the two streams, for all ranks. ``who()``: the calling rank, None for the process
    itself. ``shown``: the ranks whose lines appear (None: all); ``path(rank)``: the file that a
    rank's lines go to, too, or ``""``."""

    def __init__(
        self,
        stream: TextIO,
        who: Callable[[], int | None],
        num_ranks: int,
        shown: Collection[int] | None = None,
        path: Callable[[int], str] = lambda rank: "",
    ) -> None:
        self._stream, self._who, self._shown, self._path = stream, who, shown, path
        self._prefixed = (num_ranks if shown is None else len(shown)) > 1
        self.muted = False  # nothing is to be seen of what ranks say
        self._tails: dict[int, str] = {}
        self._files: dict[int, Log] = {}

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        return self._stream.errors

    @property
    def buffer(self) -> _Bytes:
        return _Bytes(self)

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def write(self, text: str) -> int:
        rank = self._who()
        if rank is None:
            return self._stream.write(text)
        whole, newline, tail = (self._tails.get(rank, "") + text).rpartition("\n")
        self._tails[rank] = tail
        if newline:
            self._say(rank, whole + newline)
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def finish(self) -> None:
        """Show the lines that nobody has ended; close files."""
        for rank, tail in sorted(self._tails.items()):
            if tail:
                self._say(rank, tail + "\n")
        self._tails.clear()
        for file in self._files.values():
            if why := file.close():
                put(f"dtrun: {why}\n")
        self._files.clear()
        self._stream.flush()

    def _say(self, rank: int, lines: str) -> None:
        if self.muted:
            return
        path = self._path(rank)
        if path:
            if rank not in self._files:
                self._files[rank] = Log(path)
            self._files[rank].write(lines.encode(errors="replace"))
        if self._shown is None or rank in self._shown:
            prefix = f"[rank {rank}] " if self._prefixed else ""
            try:
                for line in _LINE.findall(lines):
                    self._stream.write(line if line in _EMPTY else prefix + line)
                self._stream.flush()
            except BrokenPipeError:  # nobody reads any more: all ranks end as processes would
                os._exit(UNHEARD)


class _Bytes(io.RawIOBase):
    """What a program writes as bytes."""

    def __init__(self, voice: RankStream) -> None:
        self._voice = voice

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        raw = bytes(data)
        self._voice.write(raw.decode(self._voice.encoding or "utf-8", "replace"))
        return len(raw)

    def flush(self) -> None:
        self._voice.flush()
