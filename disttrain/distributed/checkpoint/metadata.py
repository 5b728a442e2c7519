"""What a checkpoint says of itself: which values it has, and where their chunks lie.

Plain data, under PyTorch's names. Knows nothing of ranks, files and folders.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from ...core import Size, Tensor
from ...core.types import dtypes


@dataclass
class ChunkStorageMetadata:
    """One stored piece of a tensor: a box at ``offsets`` with these ``sizes``."""

    offsets: Size
    sizes: Size


@dataclass
class TensorProperties:
    """What is known of a tensor beside its shape. ``layout``, ``memory_format`` and ``pin_memory``
    are kept for programs that name them; nothing depends on them."""

    dtype: Any = field(default_factory=dtypes.get_default_dtype)
    layout: Any = None
    requires_grad: bool = False
    memory_format: Any = None
    pin_memory: bool = False

    @staticmethod
    def create_from_tensor(tensor: Tensor) -> TensorProperties:
        """Those of ``tensor``."""
        return TensorProperties(dtype=tensor.dtype, requires_grad=tensor.requires_grad)


@dataclass
class TensorStorageMetadata:
    """A tensor: ``size`` is its global shape, of which ``chunks`` are stored."""

    properties: TensorProperties
    size: Size
    chunks: list[ChunkStorageMetadata]


@dataclass
class BytesStorageMetadata:
    """A value that is no tensor."""


STORAGE_TYPES = TensorStorageMetadata | BytesStorageMetadata
STATE_DICT_TYPE = dict[str, Any]


@dataclass
class StorageMeta:
    """Where and as what a checkpoint was saved or loaded."""

    checkpoint_id: str | os.PathLike | None = None
    save_id: str | None = None
    load_id: str | None = None
    modules: list[str] = field(default_factory=list)


@dataclass
class Metadata:
    """A whole checkpoint. ``planner_data`` and ``storage_data`` belong to planner and storage:
    with ours, the path of every flat name, and the place of every ``MetadataIndex``."""

    state_dict_metadata: dict[str, STORAGE_TYPES]
    planner_data: Any = None
    storage_data: Any = None
    storage_meta: StorageMeta | None = None
    version: str | None = None


@dataclass(frozen=True)
class MetadataIndex:
    """Names a value of a state dict, or the chunk at ``offset`` of it. ``index`` is a hint."""

    fqn: str
    offset: Size | None = None
    index: int | None = field(hash=False, compare=False, default=None)

    def __init__(self, fqn: str, offset: Any = None, index: int | None = None) -> None:
        object.__setattr__(self, "fqn", fqn)
        object.__setattr__(self, "offset", None if offset is None else Size(offset))
        object.__setattr__(self, "index", index)
