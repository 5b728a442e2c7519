"""Compiled kernels kept in files, so that each is compiled once per machine.

A file holds a magic word, the SHA-256 of its content, and the content: whatever is damaged or cut
short counts as absent and is written anew. Files are written under another name and moved into
place. A directory is used only if it is ours and nobody else may write to it, for what it holds is
executed. Nothing here raises: without a usable directory there is no cache.
"""

from __future__ import annotations

import hashlib
import os
import stat

from .. import settings

_MAGIC = b"disttrain kernel 1\n"
_MAX_BYTES = 1 << 24


def directory() -> str | None:
    """``$XDG_CACHE_HOME/disttrain/kernels``, made where missing; None if it cannot be trusted."""
    home = settings.CACHES.text()
    if not os.path.isabs(home):
        home = os.path.join(os.path.expanduser("~"), ".cache")
    path = os.path.join(home, "disttrain", "kernels")
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        os.makedirs(path, mode=0o700, exist_ok=True)
    except OSError:
        return None
    return path if _ours(os.path.dirname(path)) and _ours(path) else None


def _ours(path: str) -> bool:
    try:
        info = os.lstat(path)
    except OSError:
        return False
    mine = info.st_uid == os.geteuid() and not info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(info.st_mode) and mine


def read(folder: str | None, key: str) -> bytes | None:
    """The content kept under ``key``; None where absent, damaged or not ours."""
    if folder is None:
        return None
    try:
        fd = os.open(os.path.join(folder, key), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as f:
        info = os.fstat(fd)
        foreign = info.st_uid != os.geteuid() or info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if foreign or not stat.S_ISREG(info.st_mode) or info.st_size > _MAX_BYTES:
            return None
        data = f.read()
    head, content = data[: len(_MAGIC) + 32], data[len(_MAGIC) + 32 :]
    return content if head == _MAGIC + hashlib.sha256(content).digest() else None


def write(folder: str | None, key: str, content: bytes) -> None:
    """Keep ``content`` under ``key``; a full disk or a read-only home is no error."""
    if folder is None:
        return
    import tempfile  # not at every start: it is loaded where something is kept

    try:
        fd, temporary = tempfile.mkstemp(dir=folder, prefix=".new-")
    except OSError:
        return
    try:
        with os.fdopen(fd, "wb") as f:
            f.write(_MAGIC + hashlib.sha256(content).digest() + content)
        os.replace(temporary, os.path.join(folder, key))
    except OSError:
        try:
            os.unlink(temporary)
        except OSError:
            pass
