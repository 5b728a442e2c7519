"""Memory that a worker and the front share, in which the tensors of a batch lie one behind another.

One side writes, which makes it larger when it must; the other is told how large it is. Knows bytes
and arrays; knows no requests.
"""

from __future__ import annotations

import os

import numpy as np

from ..backends.memory import Memory, make_memory

_LEAST, _LARGE, _MOST = 1 << 16, 1 << 22, 1 << 33
_ALIGN = 64


def aligned(size: int) -> int:
    """Where the next array may start."""
    return -(-size // _ALIGN) * _ALIGN


class Slab:
    """An anonymous file that grows. Takes ``fd`` over; None: a new one."""

    def __init__(self, fd: int | None = None) -> None:
        self.fd = make_memory("disttrain-serve", _LEAST) if fd is None else fd
        self._bytes: np.ndarray = np.empty(0, np.uint8)

    def grow(self, size: int) -> None:
        """See that ``size`` bytes fit (writer). What lies there may be lost: memory of a batch that
        was much larger is given back. Raises ``MemoryError``."""
        whole = os.fstat(self.fd).st_size
        if size <= whole:
            if whole > _LARGE and size < whole // 4:
                os.ftruncate(self.fd, _LARGE)
                if size > _LARGE:
                    self.grow(size)
            return
        if size > _MOST:
            raise MemoryError(f"a batch of {size} bytes; at most {_MOST} are shared")
        try:
            os.posix_fallocate(self.fd, 0, max(_LEAST, 1 << (size - 1).bit_length()))
        except OSError as error:
            raise MemoryError(f"{size} bytes of shared memory: {error.strerror}") from None

    def array(self, offset: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """The array that lies there."""
        size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        if offset + size > self._bytes.size:
            whole = os.fstat(self.fd).st_size
            assert offset + size <= whole
            # Who still holds arrays of the smaller mapping keeps it.
            self._bytes = Memory(self.fd, whole).array()
        return self._bytes[offset : offset + size].view(dtype).reshape(shape)

    def close(self) -> None:
        """Let go of it; arrays that are in use live on."""
        self._bytes = np.empty(0, np.uint8)
        os.close(self.fd)
