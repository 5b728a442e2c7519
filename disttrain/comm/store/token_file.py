"""The file that holds a job's token, where its processes run on several hosts."""

from __future__ import annotations

import os
import stat

from ...errors import ConfigError

LEAST_BYTES = 16
_MOST_BYTES = 4096
HOW_TO_MAKE_ONE = (
    "Make it with: (umask 077; head -c 32 /dev/urandom > FILE), and copy it to every host"
)


def read_token_file(path: str) -> bytes:
    """What ``path`` holds. Nobody but its owner, who must be this user, may read or write it.
    ``fd:N`` is a descriptor that a launcher has left open.

    Raises ``ConfigError``. The token itself stands in no message.
    """
    where = f"token file {path}"
    if path.startswith("fd:") and path[3:].isdigit():
        return _inherited(int(path[3:]), where)
    how = HOW_TO_MAKE_ONE
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise ConfigError(f"{where}: it cannot be opened ({error.strerror}). {how}") from None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise ConfigError(f"{where}: a file that belongs to this user is needed. {how}")
        if found.st_mode & 0o077:
            mode = stat.S_IMODE(found.st_mode)
            raise ConfigError(
                f"{where}: others may read or write it (mode {mode:04o}); mode 0600 is needed: "
                "chmod 600 it, and make another token if others have been on this host"
            )
        token = os.read(fd, _MOST_BYTES)
    finally:
        os.close(fd)
    if len(token) < LEAST_BYTES:
        raise ConfigError(
            f"{where}: {len(token)} bytes; at least {LEAST_BYTES} secret ones are needed. {how}"
        )
    return token


def _inherited(fd: int, where: str) -> bytes:
    """What a launcher has left open for its ranks, where the token stands in no file."""
    try:
        token = os.pread(fd, _MOST_BYTES, 0)
    except OSError as error:
        raise ConfigError(
            f"{where}: the descriptor is not open in this process ({error.strerror}): it is "
            "inherited by ranks of dtrun, and by what they start if it passes it on; set "
            "DISTTRAIN_TOKEN_FILE to a file"
        ) from None
    if len(token) < LEAST_BYTES:
        raise ConfigError(f"{where}: {len(token)} bytes; it is no token of dtrun's")
    return token
