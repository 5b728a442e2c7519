"""Tensors of one message that share memory: they do on the other side, too.

Every tensor travels as it is. Those that share elements with others of the same message are then
laid over one memory again: that of one of them, or a piece that spans them all and travels as one
more tensor. Where each lies is said ahead of the pickle. Knows arrays only.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from ...backends.overlaps import overlapping
from ...core.tensor import Tensor, wrap

_LENGTH = struct.Struct("<cI")
_MARK = b"O"  # no pickle begins with it
_MOSTLY_GAPS = 4  # a span that is so many times what the tensors have in it is not sent

Place = tuple[int, int, int, tuple[int, ...]]  # a tensor, the one it lies in, where, strides; bytes


def overlaps(tensors: list[Tensor]) -> bytes:
    """What to put ahead of a pickle with ``tensors``, to which this adds what spans some of them;
    nothing where no two share memory."""
    arrays = [t.array for t in tensors]
    if len({id(_owner(array)) for array in arrays}) == len(arrays):
        return b""
    places: list[Place] = []
    for group in overlapping({n: a for n, a in enumerate(arrays) if a.__class__ is np.ndarray}):
        places += _places(group, tensors)
    if not places:
        return b""
    told = json.dumps(places).encode()
    return _LENGTH.pack(_MARK, len(told)) + told


def split(payload: Any) -> tuple[list[Place], Any]:
    """What ``overlaps`` has put ahead, and the pickle."""
    if bytes(payload[:1]) != _MARK:
        return [], payload
    _, size = _LENGTH.unpack_from(payload)
    start, end = _LENGTH.size, _LENGTH.size + size
    return json.loads(bytes(payload[start:end])), payload[end:]


def lay(tensors: list[Tensor], places: Sequence[Place]) -> set[int]:
    """Lay ``tensors`` over each other; the numbers of those that now are where they belong."""
    for number, of, offset, strides in places:
        t, memory = tensors[number], tensors[of]
        t.array = np.ndarray(t.array.shape, t.array.dtype, memory.array, offset, strides)
        st = t._st = memory.storage_cell()
        t._gen = st.gen
    return {number for number, *_ in places}


def _owner(array: np.ndarray) -> Any:
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array


def _places(group: list[int], tensors: list[Tensor]) -> list[Place]:
    """Where the tensors of ``group`` lie in one of them, or in what spans them all (added)."""
    arrays = {n: tensors[n].array for n in group}
    bounds = {n: byte_bounds(array) for n, array in arrays.items()}
    low, high = min(b[0] for b in bounds.values()), max(b[1] for b in bounds.values())
    if high - low > _MOSTLY_GAPS * sum(array.nbytes for array in arrays.values()):
        return []
    starts = {n: a.__array_interface__["data"][0] - low for n, a in arrays.items()}
    whole = (n for n in group if bounds[n] == (low, high) and arrays[n].flags.c_contiguous)
    of = next(whole, -1)
    if of < 0:
        room = np.zeros(high - low, np.uint8)
        for n, a in arrays.items():
            np.ndarray(a.shape, a.dtype, room, starts[n], a.strides)[...] = a
        of = len(tensors)
        tensors.append(wrap(room))
    return [(n, of, starts[n], a.strides) for n, a in arrays.items() if n != of]
