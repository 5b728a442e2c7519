"""Plans as bytes, which travel between ranks: JSON, and nothing is unpickled.

Classes of plans are named by a table. Whatever else a program's own planner puts into a plan
travels as ``serialize`` packs it, under the same rule for classes as in files.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import json
from typing import Any

from ....core import Size
from ....core.types import dtypes
from ....serialize.packed import pack, unpack
from .. import metadata, planner, storage
from ..state.flat import Index
from . import manifest

_CLASSES = {
    c.__name__: c
    for c in (
        manifest.Place,
        metadata.BytesStorageMetadata,
        metadata.ChunkStorageMetadata,
        metadata.Metadata,
        metadata.MetadataIndex,
        metadata.StorageMeta,
        metadata.TensorProperties,
        metadata.TensorStorageMetadata,
        planner.BytesIOWriteData,
        planner.LoadPlan,
        planner.ReadItem,
        planner.SavePlan,
        planner.TensorWriteData,
        planner.WriteItem,
        storage.WriteResult,
    )
}
_ENUMS = {c.__name__: c for c in (planner.LoadItemType, planner.WriteItemType)}
_PLAIN = {type(None), bool, int, float, str}


def dump(value: object) -> bytes:
    """``value`` as bytes."""
    return json.dumps(_to_data(value), separators=(",", ":")).encode()


def parse(data: bytes) -> Any:
    """What ``dump`` was given."""
    return _from_data(json.loads(data))


def _to_data(value: Any) -> Any:
    """``value`` as lists that begin with a tag, and plain values."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is Size:
        return ["size", *value]
    if kind is list or kind is tuple:
        return [kind.__name__, *map(_to_data, value)]
    if kind is dict:
        return ["dict", *((_to_data(k), _to_data(v)) for k, v in value.items())]
    if kind is Index:
        return ["index", int(value)]
    if isinstance(value, dtypes.dtype):
        return ["dtype", value.name]
    if isinstance(value, enum.Enum) and kind in _ENUMS.values():
        return ["enum", kind.__name__, value.name]
    if kind in _CLASSES.values():
        fields = (getattr(value, f.name) for f in dataclasses.fields(value))
        return ["class", kind.__name__, *map(_to_data, fields)]
    return ["packed", base64.b64encode(pack(value)).decode()]


def _from_data(data: int | list | str | None) -> Any:
    """What ``_to_data`` was given."""
    if type(data) is not list:
        return data
    tag, *rest = data
    if tag == "size":
        return Size(rest)
    if tag == "list":
        return [_from_data(v) for v in rest]
    if tag == "tuple":
        return tuple(_from_data(v) for v in rest)
    if tag == "dict":
        return {_from_data(k): _from_data(v) for k, v in rest}
    if tag == "index":
        return Index(rest[0])
    if tag == "dtype":
        return dtypes.BY_NAME[rest[0]]
    if tag == "enum":
        return _ENUMS[rest[0]][rest[1]]
    if tag == "class":
        return _CLASSES[rest[0]](*(_from_data(v) for v in rest[1:]))
    return unpack(base64.b64decode(rest[0]), "checkpoint: plan of another rank")
