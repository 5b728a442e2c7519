"""Folders that PyTorch's own distributed checkpoints have written.

    .metadata       a pickle of its ``Metadata``: which values there are, and where they lie
    __0_0.distcp    what rank 0 has written: values one behind the other, each a file of torch.save

Nothing is unpickled. The machine of ``serialize.pytorch`` follows the text of the pickle; the names
in it stand for records, of the closed list below, and what these say is doubted as a manifest is.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from typing import Any

import numpy as np

from ....core import Size, Tensor
from ....core.types import dtypes
from ....core.types.device import CPU, device
from ....errors import SerializationError
from ....serialize.objects import Known
from ....serialize.pytorch.opcodes import ByIdentity, Global, Machine, Refused, shown
from ....serialize.pytorch.reading import TYPES, Reader, size_of
from ..metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from ..state.boxes import Box, fault
from ..state.flat import Index, Path
from .manifest import Manifest, Place, count, sizes, text
from .reading import Files

_HERE = "torch.distributed.checkpoint.metadata"
_OLD = "torch.distributed._shard.sharded_tensor.metadata"  # of PyTorch before 2.3
_RECORDS = {
    **{
        f"{_HERE}.{name}": name
        for name in (
            "Metadata", "TensorStorageMetadata", "BytesStorageMetadata", "TensorProperties",
            "ChunkStorageMetadata", "MetadataIndex", "StorageMeta",
        )
    },
    f"{_OLD}.TensorProperties": "TensorProperties",
    "torch.distributed.checkpoint.filesystem._StorageInfo": "_StorageInfo",
}  # fmt: skip
_IGNORED = (
    f"{_HERE}._MEM_FORMAT_ENCODING", f"{_OLD}.MEM_FORMAT_ENCODING",
    "torch.serialization._get_layout",
    *(f"{m}.{kind}Path" for m in ("pathlib", "pathlib._local")
      for kind in ("Posix", "Windows", "PurePosix", "PureWindows")),
)  # fmt: skip
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*\Z")
_RANK = re.compile(r"__(\d{1,9})_\d+\.distcp\Z")


class _Record(ByIdentity):
    """What stands for an object of one of PyTorch's classes: its name, and its attributes."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.state: Any = None

    def part(self, name: str) -> Any:
        """An attribute; None where there is none."""
        return self.state.get(name) if type(self.state) is dict else None


def read(raw: bytes, where: str) -> Manifest:
    """What the bytes of a ``.metadata`` say, checked. ``SerializationError`` where they are
    damaged, hostile, or ask for more than data."""
    root = Machine(where, _found, _no_reference, _with_state).load(io.BytesIO(raw))
    try:
        return _Reader(where).manifest(root, hashlib.sha256(raw).hexdigest())
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        if isinstance(error, SerializationError):
            raise
        raise SerializationError(
            f"{where}: incomplete or of another form: {error!r:.200}"
        ) from None


def opened(path: str, about: Manifest, verify: bool) -> Files:
    """The files of the checkpoint in the folder ``path``."""
    return (_Archives if about.archives else Files)(path, about.files, verify)


# --- the pickle -----------------------------------------------------------------------------------


def _found(module: str, name: str) -> Global:
    full = f"{module}.{name}"
    if (kind := _RECORDS.get(full)) is not None:
        return Global(full, new=lambda: _Record(kind))
    if full in _IGNORED:
        return Global(full, lambda *parts: None)
    if full == "torch.Size":
        return Global(full, size_of)
    if module == "torch" and name in TYPES:
        return Global(full, value=getattr(dtypes, name))
    if full in ("torch.strided", "torch.contiguous_format", "torch.preserve_format"):
        return Global(full, value=name)
    raise Refused(
        f"it needs {full:.120}, which says nothing of a checkpoint. Nothing in it "
        "is imported or called; save with PyTorch's own planners and FileSystemWriter"
    )


def _no_reference(given: Any) -> None:
    raise Refused(f"a reference to {shown(given)}")


def _with_state(target: Any, state: Any) -> None:
    if type(target) is not _Record or target.state is not None:
        raise Refused(f"state for a {type(target).__name__}")
    target.state = state


def _record(value: Any, kind: str) -> _Record:
    if type(value) is not _Record or value.kind != kind:
        what = value.kind if type(value) is _Record else type(value).__name__
        raise ValueError(f"a {kind} is needed, {what} found")
    return value


class _Reader:
    """One ``.metadata`` that is being read."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.files: dict[str, int] = {}
        self.places: dict[MetadataIndex, Place] = {}

    def manifest(self, root: Any, digest: str) -> Manifest:
        told = _record(root, "Metadata")
        for index, info in told.part("storage_data").items():
            self._place(_index(index), _record(info, "_StorageInfo"))
        about = {
            text(name): self._value(name, found)
            for name, found in told.part("state_dict_metadata").items()
        }
        lost = [i for i in self.places if i.fqn not in about]
        if lost:
            raise ValueError(f"{lost[0].fqn!r:.80} lies in a file, and is no value")
        data = Metadata(about, _paths(told.part("planner_data")), self.places)
        ranks = [int(m[1]) + 1 for name in self.files if (m := _RANK.match(name))]
        return Manifest(f"pytorch-{digest}", max(ranks, default=1), self.files, data, True)

    def _place(self, index: MetadataIndex, info: _Record) -> None:
        name, begin = text(info.part("relative_path")), count(info.part("offset"))
        end = begin + count(info.part("length"))
        if not _NAME.match(name):
            raise ValueError(f"{name!r:.80} is no name of a file beside it")
        if info.part("transform_descriptors"):
            raise SerializationError(
                f"{self.where}: {index.fqn!r:.80} was transformed when it was written "
                f"({shown(info.part('transform_descriptors'))}); save without extensions"
            )
        if index in self.places:
            raise ValueError(f"{index.fqn!r:.80} is named twice")
        self.places[index] = Place(name, begin, end, "")
        self.files[name] = max(self.files.get(name, 0), end)

    def _value(self, name: str, found: Any) -> Any:
        if type(found) is _Record and found.kind == "BytesStorageMetadata":
            if MetadataIndex(name) not in self.places:
                raise ValueError(f"{name!r:.80} lies in no file")
            return BytesStorageMetadata()
        told = _record(found, "TensorStorageMetadata")
        shape, kind, grad = sizes(told.part("size")), *_properties(told.part("properties"))
        boxes = [_box(c) for c in told.part("chunks")]
        wrong = fault(shape, boxes)
        if wrong:
            raise ValueError(f"{name!r:.80}: {wrong}")
        chunks = [
            ChunkStorageMetadata(Size(at), Size(size))
            for at, size in boxes if 0 not in size or 0 in shape
        ]  # fmt: skip
        for chunk in chunks:
            if MetadataIndex(name, chunk.offsets) not in self.places:
                raise ValueError(f"{name!r:.80}: the piece at {list(chunk.offsets)} is in no file")
        told_of = TensorProperties(kind, requires_grad=grad)
        return TensorStorageMetadata(told_of, Size(shape), chunks)


def _index(given: Any) -> MetadataIndex:
    told = _record(given, "MetadataIndex")
    offset = told.part("offset")
    return MetadataIndex(text(told.part("fqn")), None if offset is None else sizes(offset))


def _box(given: Any) -> Box:
    told = _record(given, "ChunkStorageMetadata")
    return sizes(told.part("offsets")), sizes(told.part("sizes"))


def _properties(given: Any) -> tuple[dtypes.dtype, bool]:
    state = _record(given, "TensorProperties").state
    kind, grad = state[0], state[2]
    if not isinstance(kind, dtypes.dtype):
        raise ValueError(f"an element type is needed, {shown(kind)} found")
    return kind, grad is True


def _paths(given: Any) -> dict[str, Path] | None:
    """The path of every value: numbers in it are places in lists."""
    if given is None:
        return None
    found: dict[str, Path] = {}
    for name, path in given.items():
        if type(path) is not tuple or not all(type(k) in (str, int) for k in path) or not path:
            raise ValueError(f"a path is needed, {shown(path)} found")
        found[text(name)] = tuple(Index(count(k)) if type(k) is int else k for k in path)
    return found


# --- the values -----------------------------------------------------------------------------------


class _Archives(Files):
    """Files in which each value is an archive of its own, with the checksums of that."""

    def _fits(self, size: int, told: int) -> bool:
        return size >= told

    def check(self, place: Place, name: str) -> None:
        self._value(place, name)

    def _value(self, place: Place, name: str) -> tuple[str, Any]:
        """Where a value lies, and itself."""
        where = f"{os.path.join(self.path, place.file)}: {name!r:.80}"
        raw = np.empty(place.end - place.begin, np.uint8)
        self._blocks(raw, place, name, 0, self._num_blocks(raw.size))
        return where, Reader(raw, where, _on_host, Known((), False), self.verify).archive()

    def _into(
        self, array: np.ndarray, place: Place, name: str, kind: np.dtype, shape: tuple, box: Box
    ) -> None:
        where, found = self._value(place, name)
        if not isinstance(found, Tensor):
            raise SerializationError(f"{where}: no tensor lies at byte {place.begin}")
        stored: Any = found.detach().array
        if tuple(stored.shape) != tuple(shape) or stored.dtype != kind:
            raise SerializationError(
                f"{where}: a tensor of shape {list(stored.shape)} and type {found.dtype!r} lies "
                f"there; .metadata says {list(shape)} and {dtypes.of(kind)!r}"
            )
        part = stored[(..., *(slice(a, a + n) for a, n in zip(*box, strict=True)))]
        np.copyto(array, part, casting="unsafe")


def _on_host(tensor: Tensor, location: str) -> device:
    return CPU
