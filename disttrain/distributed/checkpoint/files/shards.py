"""One rank's file of a checkpoint: a safetensors file that any library for the format reads.

A tensor that is whole stands under its own name; a piece of one under the name with the ranges that
it covers, ``weight[0:4,0:8]``; all that is no tensor, one after the other as bytes in ``~objects``.
Knows tensors and bytes; knows nothing of the other ranks.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....backends.device.memory import memory_of
from ....backends.llvm.checksum import BLOCK, crc32c_blocks
from ....core import Tensor
from ....errors import SerializationError
from ....serialize.layout import HEADER_CAP, NAMES, Entry, build
from ....serialize.sharing import unique
from ..planner import WriteItem
from .folder import Shard
from .manifest import Place

_WINDOW = 16 * BLOCK  # hashed and written at a time
_OBJECTS = "~objects"


@dataclass(frozen=True)
class Part:
    """An item, and what is written for it."""

    item: WriteItem
    data: Tensor | io.BytesIO


def write_shard(
    path: str, name: str, parts: list[Part], opened: Callable[[Shard], Any]
) -> tuple[Shard, list[Place]]:
    """Write ``parts`` as the file ``name`` in the folder ``path``; where each lies. ``opened`` is
    given the file before anything is written, so that whoever gives up can remove it."""
    arrays, order = _arranged(parts)
    entries, raws, at = [], [], 0
    for key, array in arrays.items():
        entry, raw = _entry(key, array, at)
        entries.append(entry)
        raws.append(raw)
        at = entry.end
    blocks = sum(-(-raw.size // BLOCK) for raw in raws)
    header = build(entries, {}, crc32c=[0] * blocks)  # as long as the one that is written last
    if len(header) - 8 > HEADER_CAP:
        raise SerializationError(
            f"save: {len(entries)} tensors need a header of {len(header)} bytes in one file; at "
            f"most {HEADER_CAP} can be read. Use FileSystemWriter(single_file_per_rank=False)"
        )
    shard = Shard(path, name, len(header) + at)
    opened(shard)
    written = {e.name: (e, raw, _put(shard, raw, len(header) + e.begin))
               for e, raw in zip(entries, raws)}  # fmt: skip
    sums = [int(s) for _, _, each in written.values() for s in each]
    shard.write(build(entries, {}, crc32c=sums), 0)
    places = []
    for key, first, last in order:
        entry, raw, each = written[key]
        begin = len(header) + entry.begin
        if last < 0:
            places.append(Place(name, begin, len(header) + entry.end, hex_of(each)))
        else:
            own = hex_of(crc32c_blocks(raw[first:last]))
            places.append(Place(name, begin + first, begin + last, own))
    return shard, places


def _arranged(parts: list[Part]) -> tuple[dict[str, np.ndarray], list[tuple[str, int, int]]]:
    """The arrays to write, by name, the widest elements first (which keeps all aligned); and for
    each part its array's name, and its first and last byte there (-1: all of it)."""
    arrays: dict[str, np.ndarray] = {}
    order: list[tuple[str, int, int]] = []
    loose: list[bytes] = []
    at = 0
    for part in parts:
        if isinstance(part.data, Tensor):
            key = unique(_piece_name(part.item), arrays)
            array = part.data.detach().array
            arrays[key] = memory_of(array).numbers(memory_of(array).raw(array))
            order.append((key, 0, -1))
        else:
            loose.append(part.data.getvalue())
            order.append(("", at, at + len(loose[-1])))
            at += len(loose[-1])
    arrays = dict(sorted(arrays.items(), key=lambda pair: -min(pair[1].itemsize, 8)))
    if loose:
        key = unique(_OBJECTS, arrays)
        arrays[key] = np.frombuffer(b"".join(loose), np.uint8)
        order = [(n or key, begin, end) for n, begin, end in order]
    return arrays, order


def _piece_name(item: WriteItem) -> str:
    data = item.tensor_data
    if data is None or tuple(data.chunk.sizes) == tuple(data.size):
        return item.index.fqn
    box = zip(data.chunk.offsets, data.chunk.sizes)
    return f"{item.index.fqn}[{','.join(f'{a}:{a + n}' for a, n in box)}]"


def _entry(name: str, array: np.ndarray, at: int) -> tuple[Entry, np.ndarray]:
    """How an array stands in the file, and its bytes."""
    shape = array.shape
    array = np.ascontiguousarray(array)
    native = array.dtype.newbyteorder("<") if array.dtype.kind in "iufc" else array.dtype
    array = array.astype(native, copy=False)
    raw = array.reshape(-1).view(np.uint8)
    if native not in NAMES:  # complex128
        shape, native = (*shape, 2), np.dtype("<f8")
    return Entry(name, NAMES[native], shape, at, at + raw.size), raw


def _put(shard: Shard, raw: np.ndarray, at: int) -> np.ndarray:
    """Write bytes; their checksums."""
    sums = [np.empty(0, np.uint32)]
    for begin in range(0, raw.size, _WINDOW):
        window = raw[begin : begin + _WINDOW]
        sums.append(crc32c_blocks(window))
        shard.write(window, at + begin)
    return np.concatenate(sums)


def hex_of(sums: np.ndarray) -> str:
    """Checksums as text, 8 digits each."""
    return "".join(f"{int(s):08x}" for s in sums)
