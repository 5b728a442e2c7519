"""The log of one rank: what others brought it, in order, frame by frame, signed.

A frame is a head of fixed size, a JSON object, bytes, and a seal:

    magic u32 | length of the JSON u32 | length of the bytes u64 | where these lie u64
    | JSON | bytes | seal

Bytes that are the same as earlier ones are kept once ("where they lie"). The seal is a keyed hash
(HMAC-SHA256, 16 bytes) of the head, the JSON, the bytes' own hash and the seal before: so frames
can be neither changed nor moved, and what a rank that was killed had written is still valid. Bytes
are hashed as UMAC does it, since there are many: first by a universal hash with a secret key, which
takes a seventh of the time of SHA-256, then what that leaves by SHA-256.
Nothing is unpickled. Knows no arrays and no calls.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import mmap
import os
import queue
import struct
import threading
from collections.abc import Sequence
from typing import Any

from ...backends.llvm.kernels.universal_hash import BLOCK, KEY, condensed
from ...errors import SerializationError
from ...trace import warn
from .buffers import SHORT, Buffers

_HEAD = struct.Struct("<IIQQ")
_MAGIC = 0x4C525444
_SEAL = 16
FORMAT = 2  # of frames and what they say
_FIRST = b"disttrain recording %d" % FORMAT
_ONCE = 1 << 12  # bytes: shorter ones are kept as often as they come
_WAITING = 256 << 20  # bytes that wait to be written at most
_MOST_META = 64 << 20

Meta = dict[str, Any]
Parts = Sequence[bytes | bytearray | memoryview]


class _Digest:
    """Hashes the bytes of frames, with a key that is made from that of the seals."""

    def __init__(self, key: bytes) -> None:
        self._key = hashlib.shake_256(b"bytes " + (key or _FIRST)).digest(KEY)

    def __call__(self, parts: Parts) -> bytes:
        found, rest, size = hashlib.sha256(), b"", 0
        for part in parts:
            view, size = memoryview(part), size + len(part)
            if rest:
                more = BLOCK - len(rest)
                rest, view = rest + view[:more], view[more:]
                if len(rest) < BLOCK:
                    continue
                found.update(condensed(rest, self._key).data)
            whole = len(view) // BLOCK * BLOCK
            found.update(condensed(view[:whole], self._key).data)
            rest = bytes(view[whole:])
        found.update(rest + struct.pack("<Q", size))
        return found.digest()


def _seal(key: bytes, before: bytes, head: bytes, meta: bytes, digest: bytes) -> bytes:
    return hmac.digest(key or _FIRST, before + head + meta + digest, "sha256")[:_SEAL]


class LogWriter:
    """Adds frames to a file, by a thread of its own. A disk that is full ends the log, not the
    run."""

    def __init__(self, path: str, key: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._fd, self._key, self._path = os.open(path, flags, 0o600), key, path
        self._before, self._at, self.count = _FIRST, 0, 0
        self._kept: dict[bytes, int] = {}
        self._digest = _Digest(key)
        self._lock, self._pid, self.open = threading.Lock(), os.getpid(), True
        self._queue: queue.SimpleQueue = queue.SimpleQueue()
        self._waiting, self._room = 0, threading.Condition()
        self.buffers = Buffers()  # for the bytes of frames
        self._thread = threading.Thread(target=self._run, name="record", daemon=True)
        self._thread.start()

    def put(self, meta: Meta, parts: Parts = ()) -> int:
        """Add a frame: its number. ``parts``: its bytes, which stay as they are until they are
        given back to ``buffers``."""
        size = sum(map(len, parts))
        if os.getpid() != self._pid:  # a fork of the rank writes nothing
            return -1
        if self._waiting > _WAITING:
            with self._room:
                self._room.wait_for(lambda: self._waiting <= _WAITING or not self.open)
        with self._lock:
            number, self.count = self.count, self.count + 1
            self._waiting += size
            self._queue.put((meta, parts, size))
        return number

    def flush(self) -> None:
        """Return when all that was put is in the file."""
        if os.getpid() != self._pid or not self._thread.is_alive():
            return
        done = threading.Event()
        self._queue.put(done)
        done.wait()

    def close(self) -> None:
        """Write what is waiting, and end."""
        if os.getpid() == self._pid and self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()
        self.open = False

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            if isinstance(item, threading.Event):
                item.set()
                continue
            meta, parts, size = item
            try:
                if self.open:
                    self._write(meta, parts, size)
            except OSError as error:
                self.open = False
                warn(f"record: {self._path}: not all is recorded: {error.strerror}")
            self.buffers.give_back(parts)
            with self._room:
                self._waiting -= size
                self._room.notify_all()
        os.close(self._fd)

    def _write(self, meta: Meta, parts: Parts, size: int) -> None:
        text = json.dumps(meta, separators=(",", ":")).encode()
        digest = self._digest(parts)
        here = self._at + _HEAD.size + len(text)
        where = self._kept.setdefault(digest, here) if size >= _ONCE else here
        head = _HEAD.pack(_MAGIC, len(text), size, where)
        seal = self._before = _seal(self._key, self._before, head, text, digest)
        written = [head, text, *(parts if where == here else ()), seal]
        if size < SHORT:
            written = [b"".join(written)]
        for data in written:
            view = memoryview(data)
            self._at += len(view)
            while view:
                view = view[os.write(self._fd, view) :]


class Frame:
    """A frame that was read: ``meta``, and where its bytes are."""

    __slots__ = ("_before", "_end", "_head", "_text", "at", "checked", "meta", "size", "where")

    def __init__(self, at: int, head: tuple, text: bytes, raw: bytes, before: bytes) -> None:
        self.at, (self.size, self.where) = at, head
        self._text, self._head, self._before, self._end = text, raw, before, b""
        self.meta: Meta = {}
        self.checked = False


class Log:
    """The frames of a file, up to the first that is torn. ``key``: empty: seals are not looked at.
    Raises ``SerializationError`` for a frame that was not written with the key, when it is read.
    """

    def __init__(self, path: str, key: bytes, sealed: bool = True) -> None:
        self.path, self._key, self._sealed = path, key, sealed
        self._digest = _Digest(key)
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            self._map: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
        self.frames: list[Frame] = []
        self._read()

    def _read(self) -> None:
        data, at, before, total = self._map, 0, _FIRST, len(self._map)
        while at + _HEAD.size <= total:
            raw = data[at : at + _HEAD.size]
            magic, length, size, where = _HEAD.unpack(raw)
            start = at + _HEAD.size + length
            if magic != _MAGIC or length > _MOST_META:
                break
            end = start + (size if where == start else 0)
            if end + _SEAL > total or where > start or where + size > total:
                break
            text = data[at + _HEAD.size : start]
            frame = Frame(len(self.frames), (size, where), text, raw, before)
            try:
                frame.meta = json.loads(text)
            except ValueError:
                break
            before = frame._end = data[end : end + _SEAL]
            self.frames.append(frame)
            at = end + _SEAL
        self.torn = total - at

    def check(self, frame: Frame) -> None:
        """Raise where a frame was not written with the key."""
        if frame.checked or not self._sealed:
            return
        digest = self._digest([self._bytes(frame)])
        mine = _seal(self._key, frame._before, frame._head, frame._text, digest)
        if not hmac.compare_digest(mine, frame._end):
            raise SerializationError(
                f"{self.path}: frame {frame.at} is not what was recorded: the file was changed, or "
                "written with another key"
            )
        frame.checked = True

    def bytes_of(self, frame: Frame) -> memoryview:
        """The bytes of a frame, checked."""
        self.check(frame)
        return self._bytes(frame)

    def _bytes(self, frame: Frame) -> memoryview:
        return memoryview(self._map)[frame.where : frame.where + frame.size]


__all__ = ["FORMAT", "Frame", "Log", "LogWriter", "Meta", "Parts"]
