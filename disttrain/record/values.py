"""What is kept of a tensor: its digest, and of which part of which whole it is.

A part of a DTensor is hashed where it lies in the whole, so that the hashes of all ranks' parts add
up to that of the whole; so is a rank's part of the batch under data parallelism. Measures of arrays
are kept as long as the arrays live and nobody writes to them through a tensor.
"""

from __future__ import annotations

import math
import weakref
from typing import Any

import numpy as np

from ..backends.array_kinds import ArrayKind
from ..backends.llvm.kernels.digest import digest
from ..core import Tensor
from ..distributed.tensor.placements import Partial, local_offset
from ..distributed.tensor.spread import Spread
from ..tree import leaves
from .rows import NOTHING, Measure

ndarray = np.ndarray
_MIX = 0x9E3779B97F4A7C15
_ALL = (1 << 64) - 1


def measure(array: Any, part: tuple[int, int] | None = None) -> Measure:
    """Of an array of any kind; ``part``: this rank's number among so many that share a batch."""
    if array.__class__ is ndarray:
        return _plain(array, part)
    if isinstance(array, Spread):
        return _spread(array)
    if isinstance(array, ArrayKind):
        whole = array.whole() if array.has_data and hasattr(array, "whole") else None
        return _plain(whole, part) if whole.__class__ is ndarray else NOTHING
    return NOTHING


def _plain(array: Any, part: tuple[int, int] | None) -> Measure:
    size = array.size
    if array.dtype.hasobject:
        return NOTHING
    if part is None or part[1] == 1:
        return Measure(*digest(array), 0, size, 0)
    start = part[0] * size
    return Measure(*digest(array, start), start, size, size * part[1])


def _spread(array: Spread) -> Measure:
    """Of this rank's part, at its place in the whole."""
    local = array.local
    if isinstance(local, ArrayKind):
        local = local.whole() if local.has_data and hasattr(local, "whole") else None
    place = array.mesh.get_coordinate()
    if local.__class__ is not ndarray or place is None:
        return NOTHING
    if any(isinstance(p, Partial) for p in array.placements):
        return _plain(local, None)
    whole = math.prod(array.shape)
    if local.size == whole:
        return _plain(local, None)
    strides = _strides(array.shape)
    offset = local_offset(array.shape, array.mesh.ranks.shape, place, array.placements)
    start = sum(i * s for i, s in zip(offset, strides))
    if not local.size:
        return Measure(start=start, whole=whole)
    return Measure(*digest(local, start, strides), start, local.size, whole)


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """In elements, of a whole whose elements lie in order."""
    out, step = [], 1
    for n in reversed(shape):
        out.append(step)
        step *= n
    return tuple(reversed(out))


def array_of(t: Any) -> Any:
    """The array of a tensor, without a look at its numbers; None where it has none."""
    return t.__dict__.get("array") if isinstance(t, Tensor) else t


def shape_of(array: Any) -> tuple:
    """Type and shape of an array."""
    return getattr(array, "dtype", None), getattr(array, "shape", ())


def shape_text(array: Any) -> str:
    """Type and shape of an array, as it is shown."""
    dtype, shape = shape_of(array)
    return f"{dtype}[{', '.join(map(str, shape))}]"


def tensors(value: object, most: int = 8) -> list[Tensor]:
    """The tensors in a nest of containers, at most so many."""
    if isinstance(value, Tensor):
        return [value]
    return [leaf for leaf in leaves(value) if isinstance(leaf, Tensor)][:most]


def mixed(*numbers: int) -> int:
    """One hash of several."""
    total = 0
    for n in numbers:
        total = ((total ^ (n & _ALL)) * _MIX + 1) & _ALL
        total ^= total >> 29
    return total


class Known:
    """Measures of arrays of the host, by the arrays."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[weakref.ref, int, Measure]] = {}

    def put(self, t: Tensor, array: Any, found: Measure) -> None:
        """``array`` of ``t`` is this now."""
        if array.__class__ is not ndarray:
            return
        kept = self._found
        if len(kept) > 1 << 14:
            self._found = kept = {k: v for k, v in kept.items() if v[0]() is not None}
        st = t._st
        kept[id(array)] = (weakref.ref(array), 0 if st is None else st.version, found)

    def get(self, t: Tensor, array: Any, part: tuple[int, int] | None = None) -> Measure:
        """What ``t`` is now: it is measured, as this ``part``, where that was not done before."""
        kept = self._found.get(id(array))
        st = t._st
        version = 0 if st is None else st.version
        if kept is None or kept[0]() is not array:
            base = getattr(array, "base", None)
            if base.__class__ is ndarray and _is_alike(array, base):  # a view of all of it
                kept = self._found.get(id(base))
                array = base
        if kept is not None and kept[0]() is array and kept[1] == version:
            return kept[2]
        found = measure(array, part)
        self.put(t, array, found)
        return found


def _is_alike(array: Any, base: Any) -> bool:
    """Whether these are the same elements in the same order."""
    same = array.size == base.size and array.dtype == base.dtype
    return same and array.flags.c_contiguous and base.flags.c_contiguous
