"""The words of a segment as all ranks see them, in the order in which they are written.

A rank writes data, then a flag; a peer reads the flag, then the data. x86 makes stores visible in
order and loads in order, and every access goes through a C function that the compiler cannot look
into: there the words are plain memory. Other processors (ARM) need a flag to be stored with release
and loaded with acquire, by functions of a few instructions that LLVM makes when they are first
needed. A fence behind each store also keeps a record's data behind the word that says that it is
being written. Knows words; no ranks.
"""

from __future__ import annotations

import ctypes
import platform
from typing import Any

from ....backends.llvm.compiler import run_ir
from ....errors import CommError

_ORDERED = ("x86_64", "AMD64", "i686")
_TEXT = """
define i64 @load(ptr %p) {
  %v = load atomic i64, ptr %p acquire, align 8
  ret i64 %v
}
define void @store(ptr %p, i64 %v) {
  store atomic i64 %v, ptr %p release, align 8
  fence seq_cst
  ret void
}
define void @all() {
  fence seq_cst
  ret void
}
"""


def words_of(buffer: Any, address: int) -> Any:
    """The 64-bit words of ``buffer``, which lies at ``address``: ``words[i]``, ``words[i] = value``
    and ``words[i:j].tolist()``. Raises ``CommError`` where the machine needs fences and LLVM is
    missing."""
    view = memoryview(buffer).cast("Q")
    return view if is_ordered() else FencedWords(view, address)


def is_ordered() -> bool:
    """Whether this machine shows stores to others in their order."""
    return platform.machine() in _ORDERED


class FencedWords:
    """As a memoryview of 64-bit words."""

    def __init__(self, view: memoryview, address: int) -> None:
        self._view, self._address = view, address
        try:
            places = run_ir(_TEXT, ("load", "store", "all"))
        except (ImportError, RuntimeError) as error:
            raise CommError(
                f"shm: this machine ({platform.machine()}) needs fences between stores, which LLVM "
                f"makes, and it cannot ({error}). Install llvmlite, or use backend='tcp'."
            ) from None
        word, pointer = ctypes.c_uint64, ctypes.c_void_p
        self._load = ctypes.CFUNCTYPE(word, pointer)(places["load"])
        self._store = ctypes.CFUNCTYPE(None, pointer, word)(places["store"])
        self._fence = ctypes.CFUNCTYPE(None)(places["all"])

    def __len__(self) -> int:
        return len(self._view)

    def __getitem__(self, where: int | slice) -> Any:
        if not isinstance(where, slice):
            return self._load(self._place(where))
        self._fence()
        found = memoryview(bytes(self._view[where])).cast("Q")
        self._fence()
        return found

    def __setitem__(self, where: int, value: int) -> None:
        self._store(self._place(where), value)

    def _place(self, index: int) -> int:
        if not 0 <= index < len(self._view):
            raise IndexError(f"word {index} of {len(self._view)}")
        return self._address + 8 * index
