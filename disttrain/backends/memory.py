"""Memory that several processes see: anonymous files (memfd), mapped.

Nothing has a name that could be left behind: a file is gone when the last process that has it open
or mapped is. Knows bytes; knows nothing of what they mean.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any

import numpy as np

_FAILED = ctypes.c_void_p(-1).value


class Memory:
    """A shared mapping of a file; unmapped when nothing refers to it. (Python's ``mmap`` would keep
    a descriptor open for each, and a program that keeps its batches would run out of them.)"""

    def __init__(self, fd: int, size: int) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._unmap = libc.munmap
        self._unmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
        rights = mmap.PROT_READ | mmap.PROT_WRITE
        self.size = size
        self.address = libc.mmap(None, size, rights, mmap.MAP_SHARED, fd, 0)
        if self.address == _FAILED:
            self.address = None
            raise MemoryError(f"mapping {size} bytes: {os.strerror(ctypes.get_errno())}")
        self.__array_interface__ = {
            "version": 3, "typestr": "|u1", "shape": (size,), "data": (self.address, False),
        }  # fmt: skip

    def __del__(self) -> None:
        if getattr(self, "address", None):
            self._unmap(self.address, self.size)

    def array(self) -> np.ndarray:
        """All bytes. The array holds the mapping."""
        return np.asarray(self)


class Block(Memory):
    """Memory that can be handed to further processes: it keeps its descriptor."""

    def __init__(self, fd: int, size: int) -> None:
        """Takes ``fd`` over."""
        self.fd = fd
        super().__init__(fd, size)

    def __del__(self) -> None:
        super().__del__()
        os.close(self.fd)

    def piece(self, start: int, size: int) -> np.ndarray:
        """Bytes of the block, as an array whose memory they alone are."""
        return np.asarray(_Piece(self, start, size))


class _Piece:
    """What an array over part of a block has as its base."""

    def __init__(self, block: Block, start: int, size: int) -> None:
        self.block, self.start, self.size = block, start, size
        self.__array_interface__ = {
            "version": 3, "typestr": "|u1", "shape": (size,),
            "data": (block.address + start, False),
        }  # fmt: skip


def make_memory(name: str, num_bytes: int) -> int:
    """A new file in memory, with room for ``num_bytes``. Returns its descriptor."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    try:
        os.posix_fallocate(fd, 0, num_bytes)  # an error here, where SIGBUS would come later
    except OSError as error:
        os.close(fd)
        raise MemoryError(f"{num_bytes} bytes of shared memory: {error.strerror}") from None
    return fd


def place_of(array: np.ndarray) -> tuple[Block, int, int] | None:
    """Where the memory of ``array`` lies, if in a block: (block, start, size)."""
    owner: Any = array
    while hasattr(owner, "base"):  # arrays, and what numpy's as_strided puts between them
        owner = owner.base
    return (owner.block, owner.start, owner.size) if isinstance(owner, _Piece) else None


def owner_of(array: np.ndarray) -> np.ndarray:
    """The array that has all the memory which ``array`` lies in a part of."""
    owner: Any = array
    while hasattr(owner.base, "base") and hasattr(owner.base, "__array_interface__"):
        owner = owner.base
        while not isinstance(owner, np.ndarray):  # what numpy's own as_strided puts between
            owner = owner.base
    return owner
