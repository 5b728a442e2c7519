"""Whether two lists hold the same objects: the comparison that every guard ends in.

A list of CPython keeps pointers to its items side by side, so two lists hold the same objects where
that memory is equal, which C compares at once. Where lists are laid out otherwise, the items are
compared one by one.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable
from operator import is_

_SIZE, _ITEMS = 16, 24  # offsets in a list: how many items it has, where their pointers are
_SHORT = 64  # items that are compared sooner than the call is made
_POINTER = struct.calcsize("P")
_at = ctypes.c_void_p.from_address
_compare = ctypes.PyDLL(None).memcmp if sys.platform == "linux" else None
if _compare is not None:
    _compare.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    _compare.restype = ctypes.c_int


def one_by_one(a: list, b: list) -> bool:
    """The same, on every Python."""
    return len(a) == len(b) and all(map(is_, a, b))


def _by_memory(a: list, b: list) -> bool:
    n = len(a)
    if n < _SHORT or n != len(b):
        return one_by_one(a, b)
    return not _compare(  # type: ignore[misc]
        _at(id(a) + _ITEMS).value, _at(id(b) + _ITEMS).value, n * _POINTER
    )


def _is_laid_out() -> bool:
    """Whether lists lie in memory as ``_by_memory`` takes them to."""
    if _compare is None or sys.implementation.name != "cpython" or _POINTER != 8:
        return False
    if "t" in sys.abiflags:  # without a global lock objects are laid out otherwise
        return False
    items = [object(), None, object()]
    if ctypes.c_ssize_t.from_address(id(items) + _SIZE).value != len(items):
        return False
    start = _at(id(items) + _ITEMS).value
    return start is not None and all(
        _at(start + i * _POINTER).value == id(item) for i, item in enumerate(items)
    )


# Whether two lists hold the same objects.
alike: Callable[[list, list], bool] = _by_memory if _is_laid_out() else one_by_one
