"""Plans of a save or a load, and who makes them. PyTorch's names; data and abstract classes.

A planner stands between the state dict and the storage: it says which items there are and hands out
their memory; it knows no file. Calls come in this order: ``set_up_planner`` and
``create_local_plan`` on every rank, ``create_global_plan`` on the coordinator, ``finish_plan`` on
every rank, then ``resolve_*`` for every item.
"""

from __future__ import annotations

import abc
import io
import math
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from ...core import Size, Tensor
from .metadata import (
    STATE_DICT_TYPE,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
)


class WriteItemType(Enum):
    """A whole tensor, one chunk of a sharded one, or bytes."""

    TENSOR = auto()
    SHARD = auto()
    BYTE_IO = auto()


class LoadItemType(Enum):
    """A box of a tensor, or bytes."""

    TENSOR = auto()
    BYTE_IO = auto()


@dataclass(frozen=True)
class BytesIOWriteData:
    """How many bytes a value takes."""

    nbytes: int


@dataclass(frozen=True)
class TensorWriteData:
    """A chunk to write, of a tensor of the global shape ``size``."""

    chunk: ChunkStorageMetadata
    properties: TensorProperties
    size: Size


@dataclass(frozen=True)
class WriteItem:
    """One thing to write."""

    index: MetadataIndex
    type: WriteItemType
    bytes_io_data: BytesIOWriteData | None = None
    tensor_data: TensorWriteData | None = None

    def tensor_storage_size(self) -> int | None:
        """Bytes of the chunk; None for what is no tensor."""
        if self.tensor_data is None:
            return None
        return math.prod(self.tensor_data.chunk.sizes) * self.tensor_data.properties.dtype.itemsize


@dataclass(frozen=True)
class ReadItem:
    """One thing to read: the box of ``lengths`` at ``storage_offsets`` of a stored chunk goes to
    ``dest_offsets`` of a local one."""

    type: LoadItemType
    dest_index: MetadataIndex
    dest_offsets: Size
    storage_index: MetadataIndex
    storage_offsets: Size
    lengths: Size


@dataclass(frozen=True)
class SavePlan:
    """What one rank writes. ``usable`` is kept for programs that name it."""

    items: list[WriteItem]
    storage_data: Any = None
    planner_data: Any = None
    usable: bool = True


@dataclass
class LoadPlan:
    """What one rank reads."""

    items: list[ReadItem]
    storage_data: Any = None
    planner_data: Any = None


class SavePlanner(abc.ABC):
    """Says what is saved. Extend ``DefaultSavePlanner`` rather than this."""

    @abc.abstractmethod
    def set_up_planner(
        self,
        state_dict: STATE_DICT_TYPE,
        storage_meta: StorageMeta | None = None,
        is_coordinator: bool = False,
    ) -> None:
        """Keep what the save needs. On every rank."""

    @abc.abstractmethod
    def create_local_plan(self) -> SavePlan:
        """What this rank would write. On every rank."""

    @abc.abstractmethod
    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        """What each rank shall write, and what the checkpoint will say. On the coordinator."""

    @abc.abstractmethod
    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        """The last word on this rank's plan. On every rank."""

    @abc.abstractmethod
    def resolve_data(self, write_item: WriteItem) -> Tensor | io.BytesIO:
        """What to write for an item. May be called again, and from other threads."""


class LoadPlanner(abc.ABC):
    """Says what is loaded, and where to. Extend ``DefaultLoadPlanner`` rather than this."""

    @abc.abstractmethod
    def set_up_planner(
        self,
        state_dict: STATE_DICT_TYPE,
        metadata: Metadata | None = None,
        is_coordinator: bool = False,
    ) -> None:
        """Keep what the load needs. On every rank."""

    @abc.abstractmethod
    def create_local_plan(self) -> LoadPlan:
        """What this rank needs to read. On every rank."""

    @abc.abstractmethod
    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        """The plans of all ranks, perhaps changed. On the coordinator."""

    @abc.abstractmethod
    def finish_plan(self, central_plan: LoadPlan) -> LoadPlan:
        """The last word on this rank's plan. On every rank."""

    @abc.abstractmethod
    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Put a value that is no tensor into the state dict."""

    def resolve_bytes(self, read_item: ReadItem) -> io.BytesIO:
        """Where to put the bytes of an item."""
        return io.BytesIO()

    @abc.abstractmethod
    def resolve_tensor(self, read_item: ReadItem) -> Tensor:
        """The memory to read an item into: a view of the state dict's, where that can be."""

    @abc.abstractmethod
    def commit_tensor(self, read_item: ReadItem, tensor: Tensor) -> None:
        """The tensor that ``resolve_tensor`` gave is filled now."""
