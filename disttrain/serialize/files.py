"""Files: written whole or not at all; read as one private mapping, or piece by piece.

A written file appears under its name in one step, after its bytes have reached the disk: whoever
looks finds the old file or the new one. Until then it has no name, or (in the last moment, and on
file systems that know no files without names) that of a draft. Who writes a draft holds a lock on
it; one without a lock is what a killed process has left, and the next save in the folder removes
it. Knows bytes and paths; knows nothing of what they mean.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import mmap
import os
import re
import secrets
import stat
import time
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..errors import SerializationError
from . import disk

_CHUNK = 8 << 20  # of a stream whose length is not known
_DRAFT = ".disttrain-draft"
_STRAY = re.compile(r"\.([0-9a-f]{8})-[0-9a-f]{12}" + re.escape(_DRAFT) + r"\Z")
_NO_UNNAMED = {errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL}


# --- writing -----------------------------------------------------------------------------------


def write_file(path: str, parts: Iterable[Any], num_bytes: int) -> None:
    """Write ``parts`` (bytes-like, ``num_bytes`` together) as the file ``path``.

    The mode of a new file follows the umask (``disk.file_mode``); a replaced file keeps its mode. A
    symbolic link is followed. Raises ``WriteError``; the old file is then as it was.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError:
        mode = stat.S_IFREG
    try:
        if stat.S_ISREG(mode):
            _write_whole(os.path.realpath(path), parts, num_bytes, stat.S_IMODE(mode))
        else:  # a device or a pipe cannot be replaced
            with open(path, "wb") as f:
                f.writelines(parts)
    except OSError as error:
        raise disk.write_error(error, path, num_bytes, ". Nothing was changed") from error


def _write_whole(path: str, parts: Iterable[Any], num_bytes: int, mode: int) -> None:
    folder, name = os.path.split(path)
    _remove_strays(folder)
    draft = os.path.join(folder, f".{name[:200]}.{disk.host()}-{secrets.token_hex(6)}{_DRAFT}")
    fd = _open_draft(folder, draft)
    try:
        if num_bytes:
            with contextlib.suppress(OverflowError):
                disk.reserve(fd, num_bytes)
        for part in parts:
            _write_all(fd, part)
        if mode:
            os.fchmod(fd, mode & 0o777)
        os.fsync(fd)
        if os.fstat(fd).st_nlink == 0:
            # With a directory given (unused: the path is absolute), Python follows the link.
            os.link(f"/proc/self/fd/{fd}", draft, src_dir_fd=fd, follow_symlinks=True)
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)
        raise
    finally:
        os.close(fd)
    disk.sync_folder(folder)


def _open_draft(folder: str, draft: str) -> int:
    """A new file, locked: without a name where the file system can do that."""
    try:
        fd = os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, disk.file_mode())
    except OSError as error:
        if error.errno not in _NO_UNNAMED:
            raise
        while True:
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
            fd = os.open(draft, flags, disk.file_mode())
            disk.lock(fd)
            if os.fstat(fd).st_nlink:
                return fd
            os.close(fd)  # somebody took it for a stray before the lock was on it
    disk.lock(fd)
    return fd


def _remove_strays(folder: str) -> None:
    """Remove drafts that nobody holds a lock on: what killed processes have left. Those of other
    hosts, only when they are old."""
    strays: list[tuple[str, bool]] = []
    with contextlib.suppress(OSError):  # a folder may be one to write to and not to look into
        with os.scandir(folder) as entries:
            found = ((e.path, _STRAY.search(e.name)) for e in entries)
            strays += [(path, match[1] == disk.host()) for path, match in found if match]
    for path, is_own in strays:
        with contextlib.suppress(OSError):  # it is gone already, or belongs to somebody else
            _remove_stray(path, 0.0 if is_own else disk.FOREIGN_AGE)


def _remove_stray(path: str, age: float) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
        old = not age or status.st_mtime <= time.time() - age
        if old and disk.lock(fd, fcntl.LOCK_NB) and os.path.samestat(status, os.lstat(path)):
            os.unlink(path)
    finally:
        os.close(fd)


def _write_all(fd: int, part: Any) -> None:
    view = memoryview(part)
    while view:
        view = view[os.write(fd, view) :]


def write_stream(f: Any, parts: list[Any]) -> None:
    """Write ``parts`` to an open file-like object."""
    for part in parts:
        f.write(bytes(part) if isinstance(f, io.BytesIO) else part)
    if hasattr(f, "flush"):  # so that who opens the same file by its name finds all of it
        f.flush()


# --- reading -----------------------------------------------------------------------------------


class Mapped:
    """A file as a mapping: nothing is read before it is touched, and what is written to the arrays
    stays in this process, or (``shared``) is written to the file."""

    def __init__(self, fd: int, size: int, shared: bool = False) -> None:
        self.size = size
        flags = getattr(mmap, "MAP_NORESERVE", 0) | (
            mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE
        )
        self._bytes = np.empty(0, np.uint8)
        if size:
            memory = mmap.mmap(fd, size, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)
            self._bytes = np.frombuffer(memory, np.uint8)

    def piece(self, begin: int, num_bytes: int) -> np.ndarray:
        """Bytes of the file, writable, as an array whose memory they alone are: what is asked of
        it (``Tensor.storage``) ends where they do."""
        found = self._bytes[begin : begin + num_bytes]
        return np.frombuffer(found.data, np.uint8) if found.size else found

    def whole(self, first: bytes) -> np.ndarray:
        """All bytes."""
        return self._bytes


class Stream:
    """A file-like object, read into memory of its own piece by piece.

    ``size`` is how many bytes there are from the present position on, None when that is unknown.
    """

    def __init__(self, f: Any, where: str, alone: bool = True) -> None:
        """``alone``: nothing else may follow in the file."""
        self.f, self.where, self.alone = f, where, alone
        self.start = self.at = 0
        self.size: int | None = None
        if getattr(f, "seekable", lambda: False)():
            self.start = f.tell()
            self.size = f.seek(0, os.SEEK_END) - self.start
            f.seek(self.start)

    def piece(self, begin: int, num_bytes: int) -> np.ndarray:
        """Bytes from ``begin`` (counted from where the object was given) on."""
        if begin != self.at:
            self.f.seek(self.start + begin)
        self.at = begin + num_bytes
        if self.size is not None:
            return self._read(num_bytes)
        parts = []  # as the bytes come, so that a false length allocates nothing
        while num_bytes:
            parts.append(self._read(min(num_bytes, _CHUNK)))
            num_bytes -= parts[-1].size
        return np.concatenate(parts) if len(parts) != 1 else parts[0]

    def whole(self, first: bytes) -> np.ndarray:
        """All bytes. ``first``: those that were read already."""
        if self.size is not None:
            return self.piece(0, self.size)
        parts = [first]
        while part := self.f.read(_CHUNK):
            parts.append(part)
        return np.frombuffer(bytearray(b"".join(parts)), np.uint8)

    def _read(self, num_bytes: int) -> np.ndarray:
        out = np.empty(num_bytes, np.uint8)
        view = out.data
        while view:
            got = self._some(view)
            if not got:
                raise SerializationError(
                    f"{self.where}: {len(view)} bytes are missing at the end; it is cut short"
                )
            view = view[got:]
        return out

    def _some(self, view: memoryview) -> int:
        """Fill the start of ``view``; how many bytes came."""
        if hasattr(self.f, "readinto"):
            return self.f.readinto(view)
        data = self.f.read(min(len(view), _CHUNK))
        view[: len(data)] = data
        return len(data)


def total(parts: Iterable[Any]) -> int:
    """Bytes of ``parts`` together."""
    return sum(memoryview(p).nbytes for p in parts)
