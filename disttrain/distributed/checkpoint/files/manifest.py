"""The manifest of a checkpoint: ``Metadata`` as JSON, and back with every number doubted.

    {"disttrain.checkpoint": 1, "sha256": "<of the body>", "body":
    {"save": ..., "world_size": 2, "files": {name: bytes},
     "tensors": {name: {"dtype", "shape", "grad", "chunks": [[at, size, file, begin, end, sums]]}},
     "objects": {name: [file, begin, end, sums]}, "paths": {name: [key, ...]}, "planner": ...}
    }

``sums`` are CRC-32C of every 256 KiB of the bytes, 8 hex digits each, so that a part can be read
and checked without the rest. Offsets count from the start of the file. Knows no folder and no rank.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any

from ....backends.llvm.checksum import BLOCK
from ....core import Size
from ....core.types import dtypes
from ....errors import SerializationError
from ....serialize.layout import check_items, load_json
from ....serialize.packed import pack, unpack
from ..metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from ..state.boxes import fault
from ..state.flat import Index
from .folder import check_shard_name

VERSION = 1
_ITEMS = 30_000_000  # values in a manifest at most: two million pieces of tensors
_HEAD = '{"disttrain.checkpoint": %d, "sha256": "%s", "body":\n'
_TAIL = b"\n}\n"


@dataclass(frozen=True)
class Place:
    """Bytes of a shard, and their checksums."""

    file: str
    begin: int
    end: int
    sums: str


@dataclass(frozen=True)
class Manifest:
    """What a manifest says beside the ``Metadata``: the save, its ranks, the size of each file.
    ``archives``: PyTorch has written it, each value as an archive, and the files may be larger."""

    save: str
    world_size: int
    files: dict[str, int]
    metadata: Metadata
    archives: bool = False


# --- writing --------------------------------------------------------------------------------------


def write(manifest: Manifest) -> bytes:
    """The bytes of a manifest."""
    data, places = manifest.metadata, manifest.metadata.storage_data
    tensors: dict[str, Any] = {}
    objects: dict[str, Any] = {}
    for name, about in data.state_dict_metadata.items():
        if isinstance(about, BytesStorageMetadata):
            objects[name] = _row(places[MetadataIndex(name)])
            continue
        tensors[name] = {
            "dtype": about.properties.dtype.name,
            "shape": list(about.size),
            "grad": bool(about.properties.requires_grad),
            "chunks": [
                [list(c.offsets), list(c.sizes), *_row(places[MetadataIndex(name, c.offsets)])]
                for c in about.chunks
            ],
        }
    body: dict[str, Any] = {
        "save": manifest.save,
        "world_size": manifest.world_size,
        "files": manifest.files,
        "tensors": tensors,
        "objects": objects,
    }
    if _is_paths(data.planner_data):
        body["paths"] = {n: [_key(k) for k in path] for n, path in data.planner_data.items()}
    elif data.planner_data is not None:
        body["planner"] = base64.b64encode(pack(data.planner_data)).decode()
    text = json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
    check_items(text, "save: the manifest has", _ITEMS)  # what is saved can be loaded
    head = _HEAD % (VERSION, hashlib.sha256(text).hexdigest())
    return head.encode() + text + _TAIL


def _row(place: Place) -> list[Any]:
    return [place.file, place.begin, place.end, place.sums]


def _is_paths(data: dict | list) -> bool:
    return type(data) is dict and all(
        type(n) is str and type(path) is tuple and all(type(k) in (str, int, Index) for k in path)
        for n, path in data.items()
    )


def _key(key: int | str) -> Any:
    return [int(key)] if type(key) is Index else key


# --- reading --------------------------------------------------------------------------------------


def read(raw: bytes, where: str) -> Manifest:
    """What the bytes of a manifest say, checked. ``SerializationError`` where they are damaged,
    hostile, or of another version."""
    first, _, rest = raw.partition(b"\n")
    text = rest[: -len(_TAIL)]
    digest = hashlib.sha256(text).hexdigest()
    if first + b"\n" != (_HEAD % (VERSION, digest)).encode() or not raw.endswith(_TAIL):
        raise SerializationError(f"{where}: {_what_is_wrong(first, digest)}")
    body = load_json(text, where, _ITEMS)
    try:
        return _Reader(body, where).manifest()
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, SerializationError):
            raise
        raise SerializationError(
            f"{where}: incomplete or of another form: {error!r:.200}"
        ) from None


def _what_is_wrong(first: bytes, digest: str) -> str:
    if first.startswith(b'{"disttrain.checkpoint": ') and b'"sha256"' in first:
        version = first[len(b'{"disttrain.checkpoint": ') :].split(b",")[0]
        if version != b"%d" % VERSION:
            return (
                f"version {version[:20].decode(errors='replace')}; this program reads {VERSION}. "
                "Load it with a newer version of disttrain"
            )
        return (
            f"it does not fit its own checksum (its bytes have {digest[:16]}...): it is damaged, "
            "cut short or changed by hand. Load a copy that is whole, or an earlier checkpoint"
        )
    return "this is no manifest of a checkpoint, or it is damaged"


class _Reader:
    """One manifest that is being read."""

    def __init__(self, body: dict[str, Any], where: str) -> None:
        self.body, self.where = body, where
        self.files: dict[str, int] = {}
        self.places: dict[MetadataIndex, Place] = {}

    def manifest(self) -> Manifest:
        body = self.body
        for name, size in body["files"].items():
            self.files[check_shard_name(name, self.where)] = count(size)
        about: dict[str, Any] = {}
        for name, told in body["tensors"].items():
            about[name] = self._tensor(name, told)
        for name, row in body["objects"].items():
            if name in about:
                raise ValueError(f"{name!r:.80} is a tensor and none")
            self.places[MetadataIndex(name)] = self._place(name, *row)
            about[name] = BytesStorageMetadata()
        data = Metadata(about, self._planner_data(), self.places, None, str(VERSION))
        return Manifest(text(body["save"]), count(body["world_size"]), self.files, data)

    def _tensor(self, name: str, told: dict[str, Any]) -> TensorStorageMetadata:
        kind = dtypes.BY_NAME[text(told["dtype"])]
        shape = sizes(told["shape"])
        chunks = []
        for at, size, *row in told["chunks"]:
            box = (sizes(at), sizes(size))
            place = self._place(name, *row)
            if place.end - place.begin != math.prod(box[1]) * kind.itemsize:
                raise ValueError(f"{name!r:.80}: bytes {place.begin} to {place.end} for {box[1]}")
            self.places[MetadataIndex(name, Size(box[0]))] = place
            chunks.append(ChunkStorageMetadata(Size(box[0]), Size(box[1])))
        wrong = fault(shape, [(tuple(c.offsets), tuple(c.sizes)) for c in chunks])
        if wrong:
            raise ValueError(f"{name!r:.80}: {wrong}")
        told_grad = told["grad"] is True
        return TensorStorageMetadata(
            TensorProperties(kind, requires_grad=told_grad), Size(shape), chunks
        )

    def _place(self, name: str, file: str, begin: int, end: int, sums: str) -> Place:
        if count(begin) > count(end) or end > self.files[text(file)]:
            raise ValueError(f"{name!r:.80}: bytes {begin} to {end} of {file}")
        digits = int(sums, 16) if sums else 0
        if digits < 0 or len(sums) != 8 * -(-(end - begin) // BLOCK):
            raise ValueError(f"{name!r:.80}: checksums of {len(sums)} digits")
        return Place(file, begin, end, sums)

    def _planner_data(self) -> Any:
        if "paths" in self.body:
            return {
                name: tuple(Index(count(*k)) if type(k) is list else k for k in path)
                for name, path in self.body["paths"].items()
            }
        if "planner" not in self.body:
            return None
        return unpack(base64.b64decode(self.body["planner"], validate=True), self.where)


def count(value: int) -> int:
    """``value``, proved to be a count."""
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise ValueError(f"a count is needed, {value!r:.60} found")
    return value


def text(value: str) -> str:
    """``value``, proved to be a text."""
    if type(value) is not str:
        raise ValueError(f"a text is needed, {value!r:.60} found")
    return value


def sizes(value: list | Size) -> tuple[int, ...]:
    """``value`` as sizes, proved to be counts."""
    if type(value) not in (list, Size) or len(value) > 64:
        raise ValueError(f"sizes are needed, {value!r:.60} found")
    return tuple(map(count, value))
