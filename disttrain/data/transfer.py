"""A batch as messages between a worker and the process that it works for.

Large arrays travel in slabs, each by itself, so that keeping one array of a batch keeps no other.
What is left (the structure, small arrays) is pickled into one more slab, which is copied out at
once. Pickle is safe here: both ends are one program, joined by a socket pair that has no name.

    worker -> main, fixed size: kind, slab, batch number, size     (a descriptor comes with SLAB)
    main -> worker: 4 bytes of length, a pickled tuple
"""

from __future__ import annotations

import array
import io
import os
import pickle
import socket
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..core import Tensor, wrap
from ..core.types import dtypes
from .slabs import Borrowed, Shelf

SLAB, BATCH, END, ERROR = 1, 2, 3, 4
MESSAGE = struct.Struct("<BxxxIQQ")
LENGTH = struct.Struct("<I")
_TAIL = struct.Struct("<QI?xxx")  # last in a message's slab: where the table is, rows, all in one
_APART = 1 << 16  # bytes from which an array gets a slab of its own
_MOST_APART = 32  # with more large arrays than that, all share one slab
_ALIGN = 64
_FLAGS = socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC  # recv_fds would not pass these on


class _Pickler(pickle.Pickler):
    """Leaves the memory of tensors out of the pickle."""

    def reducer_override(self, obj: object) -> Any:
        if obj.__class__ is Tensor and type(obj.array) is np.ndarray:
            return _tensor, (*_raw(obj.array), obj.requires_grad and obj.is_leaf)
        if type(obj) is np.ndarray and obj.dtype.kind == "V" and obj.dtype in dtypes.BY_NUMPY:
            return _array, _raw(obj)  # bfloat16 and float8, which numpy would copy
        return NotImplemented


def _raw(array: np.ndarray) -> tuple:
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if not raw.flags.writeable:
        raw = raw.copy()
    return pickle.PickleBuffer(raw.data), dtypes.of(array.dtype).name, array.shape


def _array(raw: object, kind: str, shape: tuple) -> np.ndarray:
    return np.asarray(raw).view(dtypes.BY_NAME[kind].np).reshape(shape)


def _tensor(raw: np.ndarray, kind: str, shape: tuple, requires_grad: bool) -> Tensor:
    out = wrap(_array(raw, kind, shape))
    return out.requires_grad_() if requires_grad else out


# --- the worker's side ---------------------------------------------------------------------------


class Sender:
    """Sends batches over ``sock``."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self.shelf = sock, Shelf()
        self._lend(0, 0, self.shelf.page_fd)

    def _send(self, kind: int, slab: int, number: int, size: int) -> None:
        self.sock.sendall(MESSAGE.pack(kind, slab, number, size))

    def _lend(self, slab: int, size: int, fd: int) -> None:
        data = MESSAGE.pack(SLAB, slab, 0, size)
        sent = socket.send_fds(self.sock, [data], [fd])
        self.sock.sendall(data[sent:])
        os.close(fd)

    def _room(self, num_bytes: int) -> tuple[int, np.ndarray]:
        slab, memory, fd = self.shelf.place(num_bytes)
        if fd >= 0:
            self._lend(slab, memory.size, fd)
        return slab, memory

    def end(self, number: int) -> None:
        """There is no batch ``number`` and none after it."""
        self._send(END, 0, number, 0)

    def value(self, kind: int, number: int, value: object) -> None:
        """Send ``value`` as the answer to request ``number``."""
        out = io.BytesIO()
        buffers: list[pickle.PickleBuffer] = []
        _Pickler(out, 5, buffer_callback=buffers.append).dump(value)
        raws = [np.frombuffer(b.raw(), np.uint8) for b in buffers]
        raws.append(np.frombuffer(out.getbuffer(), np.uint8))
        large = [i for i, raw in enumerate(raws[:-1]) if raw.size >= _APART]
        together = len(large) > _MOST_APART
        placed: list[int] = []
        try:
            slab, size = self._fill(raws, set() if together else set(large), together, placed)
        except BaseException:
            self.shelf.take_back(placed)
            raise
        self._send(kind, slab, number, size)

    def _fill(
        self, raws: list[np.ndarray], apart: set[int], together: bool, placed: list[int]
    ) -> tuple[int, int]:
        """Copy ``raws`` into slabs: those ``apart`` by themselves, the others into one, with the
        table of all. Returns that one and its size; ``placed`` receives every slab's number."""
        table = np.zeros((len(raws), 3), np.int64)  # slab or -1, offset, bytes
        at = 0
        for i, raw in enumerate(raws):
            if i in apart:
                slab, memory = self._room(raw.size)
                placed.append(slab)
                memory[: raw.size] = raw
                table[i] = slab, 0, raw.size
            else:
                table[i] = -1, at, raw.size
                at += -(-raw.size // _ALIGN) * _ALIGN
        size = at + table.nbytes + _TAIL.size
        slab, memory = self._room(size)
        for i, raw in enumerate(raws):
            if i not in apart:
                start = table[i, 1]
                memory[start : start + raw.size] = raw
        memory[at : at + table.nbytes] = table.reshape(-1).view(np.uint8)
        _TAIL.pack_into(memory.data, size - _TAIL.size, at, len(table), together)
        return slab, size


# --- the other side ------------------------------------------------------------------------------


class Receiver:
    """Reads one worker's messages from its socket, without ever blocking."""

    def __init__(self, sock: socket.socket, prefetch: int) -> None:
        self.sock, self.prefetch = sock, prefetch
        self.home: Any = None  # Borrowed, once the worker has sent its page
        self.closed = False
        self._part = b""
        self._fds: list[int] = []

    def messages(self) -> Iterator[tuple[int, int, int, int]]:
        """(kind, slab, batch number, size) of every answer that has arrived."""
        while not self.closed:
            try:
                data = self._read(MESSAGE.size - len(self._part))
            except BlockingIOError:
                return
            except ConnectionResetError:
                data = b""
            self._part += data
            self.closed = not data
            if len(self._part) == MESSAGE.size:
                message, self._part = MESSAGE.unpack(self._part), b""
                if message[0] == SLAB:
                    self._map(message[1], message[3])
                else:
                    yield message

    def _read(self, num_bytes: int) -> bytes:
        """What has arrived, and the descriptors that came with it."""
        data, extra, _, _ = self.sock.recvmsg(num_bytes, socket.CMSG_SPACE(4), _FLAGS)
        for level, kind, payload in extra:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                self._fds.extend(array.array("i", payload))
        return data

    def _map(self, slab: int, size: int) -> None:
        fd = self._fds.pop(0)
        try:
            if self.home is None:
                self.home = Borrowed(fd)
            else:
                self.home.add(slab, fd, size)
        finally:
            os.close(fd)

    def _table(self, memory: np.ndarray, size: int) -> tuple[list[list[int]], bool]:
        """Where the parts of a value lie: (slab or -1, offset, bytes) each; are all in one slab?"""
        at, count, together = _TAIL.unpack_from(memory.data, size - _TAIL.size)
        table = memory[at : at + count * 24].view(np.int64).reshape(count, 3)
        return table.tolist(), together

    def value(self, slab: int, size: int) -> Any:
        """What the worker sent: large arrays as they lie in its slabs, the rest copied."""
        memory = self.home.array(slab)
        table, together = self._table(memory, size)
        buffers = []
        for number, start, n in table[:-1]:
            if number >= 0:
                buffers.append(self.home.array(number)[:n])
            else:
                raw = memory[start : start + n]
                buffers.append(raw if together else raw.copy())
        most = (self.prefetch + 2) * (1 + sum(number >= 0 for number, _, _ in table))
        self.home.keep = max(self.home.keep, most)
        _, start, n = table[-1]
        return pickle.loads(memory[start : start + n], buffers=buffers)

    def close(self) -> None:
        """Let go of the worker's memory, but for the arrays that exist."""
        if self.home is not None:
            self.home.close()
        while self._fds:
            os.close(self._fds.pop())

    def drop(self, slab: int, size: int) -> None:
        """Give back what a value lies in, without looking at it."""
        table, _ = self._table(self.home.array(slab), size)
        for number, _, _ in table:
            if number >= 0:
                self.home.array(number)
