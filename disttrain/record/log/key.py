"""The key of a user, with which logs are signed: a replay runs programs and unpickles what others
sent, so it takes only logs that this user's own jobs have written.

The key is a file for its owner alone, made when it is first needed. Knows no logs.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat

from ... import settings

SIZE = 32
NAME = "record.key"


def path() -> str:
    """Where it lies."""
    base = settings.CONFIG_HOME.text() or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(base, "disttrain", NAME)


def key(make: bool = False) -> bytes:
    """The key; empty where there is none, and none can be made. One that others could have written
    is none."""
    file = path()
    found = _read(file)
    if found or not make:
        return found
    part = f"{file}.{os.getpid()}"
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            os.write(fd, secrets.token_bytes(SIZE))
            with contextlib.suppress(FileExistsError):  # another rank was faster
                os.link(part, file)
        finally:
            os.close(fd)
            os.unlink(part)
    return _read(file)


def _read(file: str) -> bytes:
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return b""
    try:
        about = os.fstat(fd)
        alone = about.st_uid == os.getuid() and not about.st_mode & 0o077
        if not (alone and stat.S_ISREG(about.st_mode)):
            return b""
        found = os.read(fd, SIZE + 1)
    finally:
        os.close(fd)
    return found if len(found) == SIZE else b""
