"""What a program does to a folder, operation by operation: stopped at any of them, and replayed as
a disk would show it after a power cut.

``watched(folder)`` puts itself in front of the functions of ``os`` that change files. Every change
below ``folder`` is one entry of ``log``. From entry ``stop_at`` on nothing happens any more: each
call raises ``Stopped``, as if the process were gone, also in what tidies up. ``after_power_cut``
makes the folder that may be found when the power went after some entries: what was not synced is
there or not, for contents and for names apart.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class Stopped(BaseException):
    """The process is gone."""


@dataclass
class Log:
    """``entries``: (what, path, more). ``dies``: whom the stop concerns (default: everybody)."""

    folder: str
    stop_at: int | None = None
    dies: Callable[[], bool] = lambda: True
    entries: list[tuple[str, str, Any]] = field(default_factory=list)
    fds: dict[int, str] = field(default_factory=dict)
    stopped: bool = False

    def note(self, what: str, path: str, more: Any = None) -> None:
        """One change, about to happen."""
        if self.stopped and self.dies():
            raise Stopped
        if self.stop_at is not None and len(self.entries) >= self.stop_at and self.dies():
            self.stopped = True
            raise Stopped
        self.entries.append((what, os.path.relpath(path, self.folder), more))


@contextmanager
def watched(folder: Any, stop_at: int | None = None, dies: Any = None) -> Iterator[Log]:
    """Log, and stop, what is done below ``folder``."""
    log = Log(os.fspath(folder), stop_at, dies or (lambda: True))
    plain = {n: getattr(os, n) for n in _FUNCTIONS}
    for name, make in _FUNCTIONS.items():
        setattr(os, name, make(log, plain[name]))
    try:
        yield log
    finally:
        for name, function in plain.items():
            setattr(os, name, function)
        for fd in log.fds:  # as the system closes those of a process that is gone
            os.close(fd)


def _open(log: Log, plain: Any) -> Any:
    def function(path, flags, mode=0o777, **more):
        inside = isinstance(path, str) and (path + "/").startswith(log.folder)
        if not inside:
            return plain(path, flags, mode, **more)
        if flags & os.O_CREAT and not os.path.exists(path):
            log.note("create", path)
        fd = plain(path, flags, mode, **more)
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_DIRECTORY):
            log.fds[fd] = path
        return fd

    return function


def _close(log: Log, plain: Any) -> Any:
    def function(fd):
        log.fds.pop(fd, None)
        return plain(fd)

    return function


def _writes(log: Log, plain: Any) -> Any:
    def function(fd, data, *at):
        if fd in log.fds:
            place = at[0] if at else os.lseek(fd, 0, os.SEEK_CUR)
            log.note("write", log.fds[fd], (place, bytes(data)))
        return plain(fd, data, *at)

    return function


def _grows(log: Log, plain: Any) -> Any:
    def function(fd, offset, size):
        if fd in log.fds:
            log.note("grow", log.fds[fd], offset + size)
        return plain(fd, offset, size)

    return function


def _syncs(log: Log, plain: Any) -> Any:
    def function(fd):
        if fd in log.fds:
            log.note("sync", log.fds[fd])
        return plain(fd)

    return function


def _moves(log: Log, plain: Any) -> Any:
    def function(source, target, **more):
        if source.startswith(log.folder):
            log.note("move", source, os.path.relpath(target, log.folder))
        return plain(source, target, **more)

    return function


def _removes(log: Log, plain: Any) -> Any:
    def function(path, **more):
        if os.fspath(path).startswith(log.folder) and os.path.lexists(path):
            log.note("remove", path)
        return plain(path, **more)

    return function


_FUNCTIONS = {
    "open": _open, "close": _close, "pwrite": _writes, "write": _writes, "fsync": _syncs,
    "posix_fallocate": _grows, "replace": _moves, "unlink": _removes,
}  # fmt: skip


class _Disk:
    """Files with what is in memory of them and what is on the disk, for contents and names."""

    def __init__(self, start: dict[str, bytes]) -> None:
        numbers = dict(enumerate(start))
        self.memory = {k: bytearray(start[n]) for k, n in numbers.items()}
        self.stable = {k: bytes(start[n]) for k, n in numbers.items()}
        self.names = {n: k for k, n in numbers.items()}
        self.stable_names = dict(self.names)
        self.loose: list[tuple[str, str, Any]] = []  # changes of names since they were synced

    def do(self, what: str, path: str, more: Any) -> None:
        if what in ("create", "move", "remove"):
            self.loose.append((what, path, self.names[path] if what == "move" else more))
        if what == "create":
            number = len(self.memory)
            self.names[path] = number
            self.memory[number], self.stable[number] = bytearray(), b""
        elif what == "move":
            self.loose[-1] = (what, more, self.names[path])
            self.names[more] = self.names.pop(path)
        elif what == "remove":
            self.names.pop(path, None)
        elif what == "sync" and path == ".":
            self.stable_names = dict(self.names)
            self.loose.clear()
        elif path in self.names:
            file = self.memory[self.names[path]]
            if what == "sync":
                self.stable[self.names[path]] = bytes(file)
            else:
                end = more if what == "grow" else more[0] + len(more[1])
                file.extend(bytes(max(0, end - len(file))))
                if what == "write":
                    file[more[0] : end] = more[1]

    def found(self, kept: str) -> dict[str, int]:
        """The names on the disk: ``all``, or of what was not synced only ``kept``."""
        if kept == "all":
            return self.names
        names = dict(self.stable_names)
        for what, path, number in self.loose:
            if what == kept == "move":
                names[path] = number
            elif what == kept == "remove":
                names.pop(path, None)
        return names


def after_power_cut(
    start: dict[str, bytes], entries: list, target: Path, contents: bool, names: str
) -> None:
    """Make ``target`` as the folder may be when the power goes after ``entries``. ``contents``: is
    what was not synced of them there all the same? ``names``: what of the names is (``all``,
    ``move``, ``remove``, ``none``)?"""
    disk = _Disk(start)
    for entry in entries:
        disk.do(*entry)
    target.mkdir()
    for name, number in disk.found(names).items():
        data = disk.memory[number] if contents else disk.stable[number]
        (target / name).write_bytes(data)
