"""The folder of a checkpoint: how it changes in one step, whatever happens meanwhile.

    manifest.json                                  says all; a folder without one is no checkpoint
    shard-<save>-00000-of-00004.safetensors        what rank 0 of 4 wrote in that save

The files of a save have names of their own, so they never touch those of an earlier one. Once every
rank's bytes have reached the disk, and then the folder, the manifest gets its name by one rename:
before it, the earlier checkpoint stands as it was; after it, the new one does. Files that no
manifest names belong to a save that is running, which holds locks on them, or to one that was
killed; the next save, or ``gc``, removes those without a lock.

Knows names, bytes and locks; knows nothing of what they mean.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Collection, Iterable
from typing import Any

from ....context import drawn
from ....errors import ConfigError, SerializationError
from ....serialize.disk import (
    FOREIGN_AGE,
    file_mode,
    folder_mode,
    host,
    lock,
    reserve,
    sync_folder,
    write_error,
)

MANIFEST = "manifest.json"
METADATA = ".metadata"  # what PyTorch has in its place
MANIFEST_CAP = 1 << 30  # bytes that are read at most
_READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_SHARD = re.compile(r"shard-([0-9a-f]{8})[0-9a-f]{16}-\d{5}-of-\d{5}(-\d+)?\.safetensors\Z")
_DRAFT = re.compile(r"\.manifest-([0-9a-f]{8})[0-9a-f]{16}\.draft\Z")


# --- names ----------------------------------------------------------------------------------------


def new_save(shared: bool = False) -> str:
    """A name for one save: the host, and random digits. ``shared``: other ranks are told."""
    number = int(host(), 16) << 64 | secrets.randbits(64)
    return f"{drawn('save', number) if shared else number:024x}"


def shard_name(save: str, rank: int, world_size: int, number: int | None = None) -> str:
    """The file that ``rank`` writes; one of several where ``number`` is given."""
    more = "" if number is None else f"-{number}"
    return f"shard-{save}-{rank:05d}-of-{world_size:05d}{more}.safetensors"


def check_shard_name(name: str, where: str) -> str:
    """``name``, proved to be one that ``shard_name`` makes: no path, no other file."""
    if type(name) is not str or not _SHARD.match(name):
        raise SerializationError(f"{where}: {name!r:.80} is no name of a shard")
    return name


# --- writing --------------------------------------------------------------------------------------


def make(path: str) -> bool:
    """Make the folder where it is missing; its name is on the disk. Whether it was missing."""
    try:
        made = []
        at = os.path.abspath(path)
        while not os.path.isdir(at):
            made.append(at)
            at = os.path.dirname(at)
        os.makedirs(path, mode=folder_mode(), exist_ok=True)
        for folder in made:
            sync_folder(os.path.dirname(folder))
        return bool(made)
    except OSError as error:
        raise write_error(error, path, 0) from error


class Shard:
    """A file of a save, open and locked until the save is over."""

    def __init__(self, folder: str, name: str, num_bytes: int) -> None:
        self.folder, self.name, self.num_bytes = folder, name, num_bytes
        self.path = os.path.join(folder, name)
        self.fd = -1
        self._do(self._open)
        try:
            if num_bytes:
                self._do(reserve, self.fd, num_bytes)
        except BaseException:
            self.close(remove=True)
            raise

    def _open(self) -> None:
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        while True:
            self.fd = os.open(self.path, flags, file_mode())
            lock(self.fd)  # or not, on a file system without locks
            if os.fstat(self.fd).st_nlink:
                return
            os.close(self.fd)  # somebody took it for a leftover before the lock was on it

    def _do(self, work: Callable[..., Any], *args: int | memoryview) -> Any:
        try:
            return work(*args)
        except OSError as error:
            raise write_error(error, self.path, self.num_bytes) from error

    def write(self, part: Any, at: int) -> None:
        """Put bytes at a place."""
        self._do(self._write, memoryview(part), at)

    def _write(self, view: memoryview, at: int) -> None:
        while view:
            done = os.pwrite(self.fd, view, at)
            view, at = view[done:], at + done

    def sync(self) -> None:
        """Its bytes reach the disk."""
        self._do(os.fsync, self.fd)

    def close(self, remove: bool) -> None:
        """The save is over; ``remove``: it has failed."""
        if self.fd >= 0:
            if remove:
                with contextlib.suppress(OSError):
                    os.unlink(self.path)
            os.close(self.fd)
            self.fd = -1


def commit(folder: str, save: str, text: bytes) -> None:
    """Make ``text`` the manifest. The one step that changes which checkpoint there is."""
    draft = os.path.join(folder, f".manifest-{save}.draft")
    final = os.path.join(folder, MANIFEST)
    try:
        sync_folder(folder)  # the names of all shards are on the disk before the manifest's is
        fd = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, file_mode())
        try:
            lock(fd)
            view = memoryview(text)
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
            os.replace(draft, final)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(draft)
            raise
        finally:
            os.close(fd)
        sync_folder(folder)
    except OSError as error:
        raise write_error(error, final, len(text)) from error


# --- what is left over ----------------------------------------------------------------------------


def leftovers(folder: str, named: Collection[str]) -> list[str]:
    """Names of files of saves that are not in ``named`` (the manifest's): of an earlier checkpoint,
    of a save that was killed, or of one that is running."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    ours = (n for n in names if _SHARD.match(n) or _DRAFT.match(n))
    return sorted(n for n in ours if n not in named)


def collect(folder: str, names: Iterable[str], dry: bool = False) -> list[tuple[str, int]]:
    """Remove those of ``names`` that no save is writing; each with its bytes. ``dry``: only
    tell."""
    gone = []
    for name in names:
        with contextlib.suppress(OSError):  # it is gone already, or belongs to somebody else
            size = _collect_one(os.path.join(folder, name), name, dry)
            if size is not None:
                gone.append((name, size))
    return gone


def _collect_one(path: str, name: str, dry: bool) -> int | None:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
        match = _SHARD.match(name) or _DRAFT.match(name)
        assert match is not None
        foreign = match[1] != host()
        if not stat.S_ISREG(status.st_mode):
            return None
        if foreign and status.st_mtime > time.time() - FOREIGN_AGE:
            return None
        if not lock(fd, fcntl.LOCK_NB):
            return None
        if not dry:
            os.unlink(path)
        return status.st_size
    finally:
        os.close(fd)


# --- reading --------------------------------------------------------------------------------------


def read_manifest(folder: str) -> tuple[str, bytes]:
    """The name and the bytes of the manifest, or of what PyTorch has in its place. ``ConfigError``
    where there is no checkpoint."""
    for name in (MANIFEST, METADATA):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return name, _read(os.path.join(folder, name))
    raise ConfigError(_nothing_there(folder))


def _read(path: str) -> bytes:
    fd = os.open(path, _READING)
    with os.fdopen(fd, "rb") as f:
        status = os.fstat(fd)
        if status.st_size > MANIFEST_CAP or not stat.S_ISREG(status.st_mode):
            raise SerializationError(
                f"{path}: {status.st_size} bytes; at most {MANIFEST_CAP} are read, of a plain file"
            )
        return f.read()


def of_pytorch(folder: str) -> str:
    """What a folder is that PyTorch's distributed checkpoints have written; "" for others."""
    if not os.path.exists(os.path.join(folder, METADATA)):
        return ""
    return "it is a checkpoint of PyTorch's; read it by FileSystemReader (checkpoint_id=...)"


def _nothing_there(folder: str) -> str:
    if not os.path.isdir(folder):
        what = "it does not exist" if not os.path.exists(folder) else "it is no folder"
        return f"checkpoint: {folder}: {what}; name the folder that a save wrote"
    if leftovers(folder, ()):
        why = "it holds shards of a save that did not finish, and none that did"
    else:
        why = "there is none"
    return f"checkpoint: {folder} has no {MANIFEST}: {why}"


def open_shard(folder: str, name: str) -> int:
    """A descriptor of a shard, for reading."""
    path = os.path.join(folder, name)
    try:
        return os.open(path, _READING)
    except FileNotFoundError:
        raise SerializationError(
            f"{path} is missing, and the manifest names it. Load a copy of the checkpoint that is "
            "whole, or an earlier one"
        ) from None
