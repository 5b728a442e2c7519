"""Stores without a network: in this process, and in a file that processes share."""

from __future__ import annotations

import fcntl
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ... import context
from ...errors import StoreError
from .base import Store, Timeout, keys_text, wait_for
from .table import ADD, CHANGES, HIDDEN, Limits, Request, Table, decode, encode

_LENGTH = struct.Struct("<I")
_MAGIC = b"disttrain-store1"
_USERS = HIDDEN + b"users"


class HashStore(Store):
    """A store in this process, shared by its threads (and by simulated ranks)."""

    def __init__(self, timeout: Timeout = None, limits: Limits | None = None) -> None:
        super().__init__(timeout)
        self._table, self._lock = Table(limits), threading.Lock()

    def _call(self, request: Request, timeout: float) -> list[bytes]:
        answer: list[bytes] | None = None

        def ready() -> bool:
            nonlocal answer
            with self._lock:
                answer = self._table.apply(request)
            return answer is not None

        def what() -> str:
            return f"HashStore: {keys_text(self._table.missing(request))} to be set"

        wait_for(request, ready, what, timeout)
        assert answer is not None
        return answer


class FileStore(Store):
    """A store in a file on a file system that all ranks see (mode 0600).

    The file is a log of the changes, so a process that is killed while it writes leaves at most
    an incomplete last entry, which the next writer drops. Give each job a fresh path: a file that
    an earlier job left behind still holds its keys. Where ``world_size`` was given, the file goes
    with the last of the stores on it (``close``, or its end as an object).
    """

    def __init__(
        self, file_name: str | os.PathLike, world_size: int = -1, timeout: Timeout = None
    ) -> None:
        super().__init__(timeout)
        self.path = os.fspath(file_name)
        self._counted = world_size > 0
        self._table, self._read = Table(), 0
        self._lock, self._owner = threading.Lock(), os.getpid()
        if self._counted:
            self._ask(ADD, [_USERS], b"1")

    def _call(self, request: Request, timeout: float) -> list[bytes]:
        answer: list[bytes] | None = None

        def ready() -> bool:
            nonlocal answer
            with self._lock:
                if request[0] in CHANGES:
                    answer = self._change(request, timeout)
                else:
                    self._catch_up(timeout)
                    answer = self._table.apply(request)
            return answer is not None

        def what() -> str:
            missing = keys_text(self._table.missing(request))
            return f"FileStore at {self.path}: {missing} to be set"

        wait_for(request, ready, what, timeout)
        assert answer is not None
        return answer

    def close(self) -> None:
        """Remove the file if this was the last store on it."""
        if self._counted and self._owner == os.getpid() and os.path.exists(self.path):
            self._counted = False
            self._ask(ADD, [_USERS], b"-1")

    def __del__(self) -> None:
        try:
            self.close()
        except (AttributeError, StoreError):  # it was never whole, or the file is gone
            return

    def num_keys(self) -> int:
        return super().num_keys() + self._counted  # the one that counts the stores

    def _change(self, request: Request, timeout: float) -> list[bytes] | None:
        with self._open(fcntl.LOCK_EX, timeout) as fd:
            self._replay(fd)
            os.ftruncate(fd, self._read)  # drops what a killed writer left incomplete
            answer = self._table.apply(request)
            record = encode(*request)
            record = _LENGTH.pack(len(record)) + record
            try:
                if os.pwrite(fd, record, self._read) != len(record):
                    raise OSError("only a part of the entry could be written")
            except OSError as error:
                self._table, self._read = Table(), 0  # read it all again next time
                raise StoreError(f"FileStore at {self.path}: cannot write: {error}") from None
            self._read += len(record)
            if request[1] == [_USERS] and answer is not None and int(answer[0]) <= 0:
                os.unlink(self.path)  # while nobody else can come in
            return answer

    def _catch_up(self, timeout: float) -> None:
        try:
            if os.stat(self.path).st_size == self._read > 0:
                return
        except FileNotFoundError:
            pass
        with self._open(fcntl.LOCK_SH, timeout) as fd:
            self._replay(fd)

    def _replay(self, fd: int) -> None:
        """Apply the changes that others have made since the last look."""
        size = os.fstat(fd).st_size
        if size < self._read:  # somebody has made the file anew
            self._table, self._read = Table(), 0
        if self._read == 0:
            self._check_magic(fd, size)
        while self._read + _LENGTH.size <= size:
            (length,) = _LENGTH.unpack(os.pread(fd, _LENGTH.size, self._read))
            end = self._read + _LENGTH.size + length
            if end > size:
                return
            self._table.apply(decode(os.pread(fd, length, self._read + _LENGTH.size)))
            self._read = end

    def _check_magic(self, fd: int, size: int) -> None:
        if size == 0:
            os.pwrite(fd, _MAGIC, 0)
        elif os.pread(fd, len(_MAGIC), 0) != _MAGIC:
            raise StoreError(
                f"FileStore at {self.path}: the file is not a store; give a path of its own"
            )
        self._read = len(_MAGIC)

    @contextmanager
    def _open(self, lock: int, timeout: float) -> Iterator[int]:
        """The open file, locked. A new description each time, so threads exclude each other too."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        while True:
            try:
                fd = os.open(self.path, flags, 0o600)
            except OSError as error:
                raise StoreError(f"FileStore at {self.path}: cannot open: {error}") from None
            try:
                _lock(fd, lock, self.path, timeout)
                if os.fstat(fd).st_nlink:  # else its last user has removed it meanwhile
                    yield fd
                    return
            finally:
                os.close(fd)


def _lock(fd: int, lock: int, path: str, timeout: float) -> None:
    context.wait_until(lambda: _try_lock(fd, lock), lambda: f"the lock of {path}", timeout)


def _try_lock(fd: int, lock: int) -> bool:
    try:
        fcntl.flock(fd, lock | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
