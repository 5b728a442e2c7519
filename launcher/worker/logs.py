"""Files of --log-dir. A full disk loses text of a log, not the job, and what is lost is said."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

_LONGEST = 1 << 18  # bytes of a line that is looked at as a whole
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Log:
    """A file that outputs are added to. Raises ``OSError`` where it cannot be made."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lost, self._why = 0, ""
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self.fd = os.open(path, flags, 0o600)

    def write(self, data: bytes) -> None:
        """Add ``data``, or as much of it as there is room for."""
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self.fd, view) :]
            except OSError as error:
                self._lost += len(view)
                self._why = error.strerror or str(error)
                return

    def close(self) -> str:
        """What is to be said of it; nothing where it has everything."""
        os.close(self.fd)
        if not self._lost:
            return ""
        return f"{self.path}: {self._lost} bytes of output are missing: {self._why}"


class Sieve:
    """The lines of one output that have one of some words in them, for a file of many outputs."""

    def __init__(self, words: Sequence[str], log: Log, prefix: str) -> None:
        self._words, self._log = [word.encode() for word in words], log
        self._prefix, self._rest = prefix.encode(), b""

    def take(self, data: bytes) -> None:
        """More of the output."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST:
            lines, self._rest = [*lines, self._rest], b""
        found = [line for line in lines if any(word in line for word in self._words)]
        if found:
            self._log.write(b"".join(self._prefix + line + b"\n" for line in found))

    def finish(self) -> None:
        """Nothing more comes: its last line may have no end."""
        if self._rest:
            self.take(b"\n")


def write_whole(path: str, text: str) -> str:
    """Write a file at once, or not at all; why not, or nothing."""
    part = f"{path}.tmp"
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(part, path)
    except OSError as error:
        if os.path.exists(part):
            os.unlink(part)
        return f"{path} could not be written: {error.strerror or error}"
    return ""
