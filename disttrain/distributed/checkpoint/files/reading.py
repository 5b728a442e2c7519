"""The files of a checkpoint while it is loaded: byte ranges, each checked, into tensors' memory.

Checksums stand for blocks of 256 KiB from where a value begins, so what is needed of a block brings
the rest of it along, and nothing else is read. A block is checked while it lies in the processor's
cache, right after it was read. Files of other libraries have none (``Place.sums`` is empty).
"""

from __future__ import annotations

import io
import os
from typing import Any

import numpy as np

from ....backends.device.memory import memory_of
from ....backends.llvm.checksum import BLOCK, crc32c_at
from ....core import Tensor, wrap
from ....core.writes import touched
from ....errors import SerializationError
from ....serialize.layout import check_header_sum, header_length
from ..metadata import Metadata, TensorStorageMetadata
from ..planner import LoadItemType, LoadPlan, LoadPlanner
from ..state.boxes import Box, runs
from .folder import open_shard
from .manifest import Place

_SPAN = 64 * BLOCK  # of memory for boxes that do not lie in one piece


class Files:
    """The shards of one checkpoint, opened when they are needed. ``sizes``: the bytes of each."""

    def __init__(self, path: str, sizes: dict[str, int], verify: bool) -> None:
        self.path, self.sizes, self.verify = path, sizes, verify
        self._open: dict[str, int] = {}

    def __enter__(self) -> Files:
        return self

    def __exit__(self, *exc: Any) -> None:
        for fd in self._open.values():
            os.close(fd)
        self._open.clear()

    def _fd(self, name: str, sums: str) -> int:
        """``sums``: empty in files of other libraries, which have no checksums."""
        if name not in self._open:
            fd = self._open[name] = open_shard(self.path, name)
            size = os.fstat(fd).st_size
            if not self._fits(size, self.sizes[name]):
                raise SerializationError(
                    f"{os.path.join(self.path, name)}: {size} bytes, and the manifest says "
                    f"{self.sizes[name]}: it is cut short or another file. Load a copy that is "
                    "whole, or an earlier checkpoint"
                )
            if self.verify and sums:
                self._check_header(fd, name, size)
        return self._open[name]

    def _fits(self, size: int, told: int) -> bool:
        """Whether a file has the bytes that were told."""
        return size == told

    def _check_header(self, fd: int, name: str, size: int) -> None:
        """Nothing of it is needed; but who loads a damaged file is to know."""
        where = os.path.join(self.path, name)
        length = header_length(os.pread(fd, 10, 0), size, where)
        check_header_sum(os.pread(fd, 8 + length, 0), where)

    def whole(self, place: Place, name: str) -> bytes:
        """All bytes of a value."""
        out = np.empty(place.end - place.begin, np.uint8)
        self._blocks(out, place, name, 0, self._num_blocks(out.size))
        return out.tobytes()

    def check(self, place: Place, name: str) -> None:
        """Read all bytes of a value, and compare their checksums."""
        self.whole(place, name)

    def fill(
        self, target: Tensor, place: Place, name: str, kind: np.dtype, shape: tuple, box: Box
    ) -> None:
        """Fill ``target`` with the box of a stored array of this type and shape."""
        memory = memory_of(target.array)
        array = memory.raw(target.array)
        if 0 in box[1]:
            return
        if not memory.on_host:
            host = wrap(memory.pinned(array.shape, array.dtype))
            self.fill(host, place, name, kind, shape, box)
            memory.copy_to(array, host.array)
            touched(target)
            return
        self._into(array, place, name, kind, shape, box)
        touched(target)

    def _into(
        self, array: np.ndarray, place: Place, name: str, kind: np.dtype, shape: tuple, box: Box
    ) -> None:
        """Fill an array of the host."""
        plain = array.dtype == kind and array.flags.c_contiguous
        if plain and tuple(box[1]) == tuple(shape) and kind != np.bool_:
            raw = array.reshape(-1).view(np.uint8)
            self._blocks(raw, place, name, 0, self._num_blocks(raw.size))
        else:
            self._box(array, place, name, kind, shape, box)

    @staticmethod
    def _num_blocks(num_bytes: int) -> int:
        return -(-num_bytes // BLOCK)

    def _box(
        self, array: np.ndarray, place: Place, name: str, kind: np.dtype, shape: tuple, box: Box
    ) -> None:
        """Fill ``array`` with a box, by way of memory that only holds the blocks it lies in."""
        inner, begins = runs(shape, *box)
        first = begins * kind.itemsize // BLOCK
        last = ((begins + inner) * kind.itemsize - 1) // BLOCK
        low, high = int(first[0]), int(last[-1]) + 1
        wide = next((d for d, n in enumerate(box[1]) if n > 1), None)
        if (high - low) * BLOCK > _SPAN and wide is not None:
            half = box[1][wide] // 2
            for begin, size in ((0, half), (half, box[1][wide] - half)):
                at = tuple(a + begin if d == wide else a for d, a in enumerate(box[0]))
                sizes = tuple(size if d == wide else n for d, n in enumerate(box[1]))
                part = array[(slice(None),) * wide + (slice(begin, begin + size),)]
                self._box(part, place, name, kind, shape, (at, sizes))
            return
        scratch = np.empty(min((high - low) * BLOCK, place.end - place.begin - low * BLOCK),
                           np.uint8)  # fmt: skip
        for begin, end in _spans(first - low, last - low + 1):
            piece = scratch[begin * BLOCK : end * BLOCK]
            self._blocks(piece, place, name, low + begin, low + end)
        self._copy(array, scratch, low * BLOCK, name, kind, (shape, box, int(begins[0])))

    def _copy(
        self, array: np.ndarray, scratch: np.ndarray, base: int, name: str, kind: np.dtype,
        where: tuple,
    ) -> None:  # fmt: skip
        shape, box, first = where
        strides = [kind.itemsize * int(np.prod(shape[d + 1 :])) for d in range(len(shape))]
        start = first * kind.itemsize - base
        if start % kind.itemsize or scratch.ctypes.data % kind.itemsize:
            raise AssertionError("blocks begin where elements do")
        view = np.ndarray(box[1], kind, scratch, start, strides)
        if kind == np.bool_ and view.view(np.uint8).max() > 1:
            raise SerializationError(
                f"{self.path}: tensor {name!r}: a truth value is {view.view(np.uint8).max()}; 0 "
                "and 1 are allowed"
            )
        np.copyto(array, view, casting="unsafe")

    def _blocks(self, out: np.ndarray, place: Place, name: str, first: int, last: int) -> None:
        """Read the blocks ``first`` to ``last`` of a value into ``out``, and check them."""
        fd = self._fd(place.file, place.sums)
        view, address, size = memoryview(out.data), out.ctypes.data, out.size
        check = self.verify and place.sums
        for k in range(first, last):
            at = (k - first) * BLOCK
            piece = view[at : at + BLOCK]
            begin = place.begin + k * BLOCK
            if os.preadv(fd, [piece], begin) != len(piece):
                self._read(fd, piece, begin, place, name)
            if check:
                told = int(place.sums[8 * k : 8 * k + 8], 16)
                if crc32c_at(out, address, at, min(at + BLOCK, size)) != told:
                    raise SerializationError(
                        f"{os.path.join(self.path, place.file)}: tensor {name!r}: the bytes "
                        f"{begin} to {begin + len(piece)} do not fit their checksum. The file is "
                        "damaged, or of another save; load a copy that is whole, or an earlier "
                        "checkpoint"
                    )

    def _read(self, fd: int, piece: memoryview, at: int, place: Place, name: str) -> None:
        while piece:
            got = os.preadv(fd, [piece], at)
            if not got:
                raise SerializationError(
                    f"{os.path.join(self.path, place.file)}: tensor {name!r}: the file ends at "
                    f"byte {at}; it is cut short"
                )
            piece, at = piece[got:], at + got


def follow(plan: LoadPlan, planner: LoadPlanner, about: Metadata, files: Files) -> None:
    """Read the items of a plan, in the order in which they lie in the files."""
    places = about.storage_data
    sizes: dict[str, dict[Any, tuple]] = {}  # of the pieces of a tensor, by their offsets
    for item in sorted(plan.items, key=lambda i: _order(places[i.storage_index])):
        place, name = places[item.storage_index], item.storage_index.fqn
        if item.type is LoadItemType.BYTE_IO:
            planner.load_bytes(item, io.BytesIO(files.whole(place, name)))
            continue
        told = about.state_dict_metadata[name]
        assert isinstance(told, TensorStorageMetadata)
        if name not in sizes:
            sizes[name] = {c.offsets: tuple(c.sizes) for c in told.chunks}
        target: Tensor = planner.resolve_tensor(item)
        box = (tuple(item.storage_offsets), tuple(item.lengths))
        files.fill(
            target,
            place,
            name,
            told.properties.dtype.np,
            sizes[name][item.storage_index.offset],
            box,
        )
        planner.commit_tensor(item, target)


def _order(place: Place) -> tuple[str, int]:
    return place.file, place.begin


def _spans(first: np.ndarray, last: np.ndarray) -> list[tuple[int, int]]:
    """Ranges of blocks that overlap or touch, put together; ``first`` is in order."""
    out: list[tuple[int, int]] = []
    for begin, end in np.unique(np.stack([first, last], 1), axis=0).tolist():
        if out and begin <= out[-1][1]:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((begin, end))
    return out
