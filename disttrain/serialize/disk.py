"""What writing to a disk takes, whatever is written: room, locks, names that last, clear errors.

Knows descriptors and paths; knows no kind of file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import zlib

from .. import settings
from ..errors import WriteError

FOREIGN_AGE = 86400.0  # seconds; not all file systems show locks of other hosts
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def file_mode() -> int:
    """The mode of a new file, of which the umask takes away; ``DISTTRAIN_PRIVATE_FILES``: for its
    owner alone."""
    return 0o600 if settings.PRIVATE_FILES.flag() else 0o666


def folder_mode() -> int:
    """The same of a new folder."""
    return 0o700 if settings.PRIVATE_FILES.flag() else 0o777


def host() -> str:
    """This host in the names of drafts: 8 hex digits."""
    return f"{zlib.crc32(os.uname().nodename.encode()):08x}"


def lock(fd: int, flags: int = 0) -> bool:
    """Lock ``fd`` as long as it is open here; False where somebody else has, or nobody can."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | flags)
    except OSError:
        return False
    return True


def reserve(fd: int, num_bytes: int) -> None:
    """Find out now, before anything is written, whether the disk has room."""
    try:
        os.posix_fallocate(fd, 0, num_bytes)
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise


def sync_folder(path: str) -> None:
    """The names in a folder reach the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_error(error: OSError, path: str, num_bytes: int, end: str = "") -> WriteError:
    """``error`` with the path, and with what is needed and free where the disk is full; the text
    stops with ``end``."""
    text = f"save: {path} could not be written: {error.strerror}"
    folder = os.path.dirname(os.path.realpath(path))
    if error.errno in _NO_ROOM:
        with contextlib.suppress(OSError):
            disk = os.statvfs(folder)
            text += f"; {num_bytes} bytes are needed, {disk.f_bavail * disk.f_frsize} are free"
    elif error.errno == errno.ENOENT:
        text += f"; the folder {folder} must exist"
    return WriteError(error.errno, text + end)
