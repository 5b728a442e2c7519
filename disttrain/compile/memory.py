"""Which memory arrays lie in, and who in it has a name: the identity that captures go by.

Two tensors are the same when they are the same bytes, whatever names reach them: ``detach``,
``.data``, views, state dicts, numpy. A tensor over memory that is known under another name is a
window: so many bytes from where the known one begins, with a shape and strides of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..backends.device.array import DeviceArray
from ..core.tensor import Tensor, layout
from ..ops.declare import primitive
from ..ops.primitives.aliases import address_of, storage_of

ndarray = np.ndarray
FOREIGN = 0  # memory that another library gave, whose parts have nothing in common but addresses
_HOLDERS = (bytes, bytearray, memoryview)


def owner_of(a: np.ndarray) -> int:
    """A number that is equal for arrays that may lie in one memory."""
    if a.__class__ is DeviceArray:
        return id(a.memory)
    while True:
        base = getattr(a, "base", None)
        if base is None:
            return id(a)
        if not (hasattr(base, "base") and hasattr(base, "__array_interface__")):
            return id(base) if isinstance(base, _HOLDERS) else FOREIGN
        a = base


def is_laid_out(a: Any) -> bool:
    return isinstance(a, (ndarray, DeviceArray))


def is_whole(a: Any) -> bool:
    """Whether an array has all of the memory that it lies in, in order."""
    if a.__class__ is DeviceArray:
        return a.flags.c_contiguous and a.root().nbytes == a.nbytes
    if a.__class__ is not ndarray or not a.flags.c_contiguous or not a.flags.writeable:
        return False
    base = a.base
    return base is None or (base.__class__ is ndarray and is_whole(base) and base.size == a.size)


def extent(a: np.ndarray) -> tuple[int, int]:
    """The addresses between which the elements of ``a`` lie."""
    low = high = address_of(a)
    if not a.size:
        return low, low
    for n, step in zip(a.shape, a.strides, strict=True):
        low, high = low + min(0, step) * (n - 1), high + max(0, step) * (n - 1)
    return low, high + a.itemsize


def overlap(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether the bytes of two arrays of one owner lie among each other."""
    if a is b:
        return True
    if not (is_laid_out(a) and is_laid_out(b)):
        return False
    (low, high), (start, end) = extent(a), extent(b)
    return max(low, start) < min(high, end)


def coincide(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays are the same elements in the same order."""
    return a is b or (
        is_laid_out(a) and is_laid_out(b)
        and a.shape == b.shape and a.dtype == b.dtype and a.strides == b.strides
        and address_of(a) == address_of(b)
    )  # fmt: skip


def _covers(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether all bytes of ``b`` lie between the first and the last of ``a``."""
    if not (is_laid_out(a) and is_laid_out(b)):
        return False
    (low, high), (start, end) = extent(a), extent(b)
    return low <= start and end <= high


def pattern(tensors: list[Tensor], owners: list[int]) -> tuple:
    """How tensors lie among each other where they overlap, as part of a key."""
    found: list[tuple] = []
    for i, t in enumerate(tensors):
        for j in range(i):
            s = tensors[j]
            if owners[i] == owners[j] and overlap(s.array, t.array):
                cell = t._st is s._st and t._st is not None
                apart = 0 if t.array is s.array else address_of(t.array) - address_of(s.array)
                found.append((j, i, t is s, apart, cell, root_of(t) is root_of(s)))
    return tuple(found)


def relation(own: Tensor, t: Tensor) -> str:
    """What ``t`` is to ``own``, a tensor over the same elements: it "self", another whose writes
    count as writes to it ("detach"), or one whose writes do not ("data")."""
    if t is own:
        return "self"
    return "detach" if t._st is not None and t._st is own._st else "data"


def root_of(t: Tensor) -> Tensor:
    """What ``t`` is, in the end, a view of."""
    while t._view is not None:
        t = t._view[0]
    return t


class Memories:
    """The tensors that are known, by the memory that they lie in.

    ``tensor`` of an entry is None for an array that no tensor stands for (numpy's, from outside).
    """

    def __init__(self) -> None:
        self.by_owner: dict[int, list[tuple[Any, Tensor | None]]] = {}

    def add(self, array: Any, tensor: Tensor | None) -> None:
        """``tensor`` lies in ``array``."""
        self.by_owner.setdefault(owner_of(array), []).append((array, tensor))

    def around(self, array: np.ndarray) -> Iterator[tuple[Any, Tensor | None]]:
        """Those that share bytes with ``array``."""
        for known in self.by_owner.get(owner_of(array), ()):
            if overlap(known[0], array):
                yield known

    def best(self, t: Tensor) -> tuple[Any, Tensor | None] | None:
        """The one that ``t`` is best described by: the same elements before a whole that contains
        them, and of those one whose writes count as writes to ``t``."""
        found, most = None, 0
        for known in self.around(t.array):
            array, tensor = known
            same = coincide(array, t.array)
            if not same and not _covers(array, t.array):
                continue
            cell = tensor is not None and tensor._st is not None and tensor._st is t._st
            rank = 1 + 4 * same + 2 * cell + (tensor is not None)
            if rank > most:
                found, most = known, rank
        return found


# --- windows -------------------------------------------------------------------------------------
def _window(
    a: np.ndarray,
    *,
    offset: int,
    shape: tuple,
    strides: tuple,
    dtype: np.dtype,
    within: tuple,
    counted: bool,
) -> Any:
    if _is_whole(a, offset, shape, strides, dtype, within):
        return a.view()
    if a.strides != within:  # values alone, laid out otherwise
        a = _laid_out(a, within)
    memory = storage_of(a)
    return ndarray(shape, dtype, memory, address_of(a) - address_of(memory) + offset, strides)


def _is_whole(
    a: Any, offset: int, shape: tuple, strides: tuple, dtype: np.dtype, within: tuple
) -> bool:
    return not offset and shape == a.shape and strides == within and dtype == a.dtype


def _window_there(platform: Any, a: Any, *, offset: int, counted: bool, **how: Any) -> Any:
    """``_window`` of a device's raw array."""
    if _is_whole(a, offset, **how):
        return a.view()
    memory = platform.owner(a).ravel(order="K").view(np.uint8)
    start = platform.address(a) - platform.address(memory) + offset
    whole = (memory.size - start) // how["dtype"].itemsize * how["dtype"].itemsize
    cells = memory[start : start + whole].view(how["dtype"])
    return platform.xp.lib.stride_tricks.as_strided(cells, how["shape"], how["strides"])


def _laid_out(a: ndarray, strides: tuple) -> ndarray:
    """A copy of ``a`` with these strides."""
    low = sum(min(0, s) * (n - 1) for n, s in zip(a.shape, strides, strict=True))
    high = sum(max(0, s) * (n - 1) for n, s in zip(a.shape, strides, strict=True))
    out = ndarray(a.shape, a.dtype, np.zeros(high - low + a.itemsize, np.uint8), -low, strides)
    out[...] = a
    return out


# Another tensor over (part of) the memory of ``a``, outside of the graph that ``a`` is part of.
# ``offset`` and ``strides`` in bytes; ``within``: the strides of ``a``; ``counted``: writes to one
# count as writes to the other.
window = primitive(
    "window", _window, "a", shape=lambda a, shape, dtype, **_: (shape, dtype), view=True
)
window.on_device = _window_there


def window_on(array: np.ndarray, known: Tensor, t: Tensor) -> dict:
    """The parameters by which ``t`` is a window on the memory ``array`` of ``known``."""
    there = layout(t)
    offset = 0 if there is array else address_of(there) - address_of(array)
    return {
        "offset": offset, "shape": there.shape, "strides": there.strides, "dtype": there.dtype,
        "within": array.strides, "counted": t._st is not None and t._st is known._st,
    }  # fmt: skip
