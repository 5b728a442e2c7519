"""Where checkpoints lie: abstract classes under PyTorch's names.

Calls on a writer: ``reset``, ``set_up_storage_writer``, ``prepare_local_plan`` on every rank;
``prepare_global_plan`` on the coordinator; ``write_data`` on every rank; ``finish`` on the
coordinator, which makes the checkpoint visible; ``abandon`` on every rank where that was not to be.
"""

from __future__ import annotations

import abc
import os
from dataclasses import dataclass
from typing import Any

from ...futures import Future
from .metadata import Metadata, MetadataIndex, StorageMeta
from .planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner


@dataclass(frozen=True)
class WriteResult:
    """What was written for an item; ``storage_data`` says where."""

    index: MetadataIndex
    size_in_bytes: int
    storage_data: Any


class StorageWriter(abc.ABC):
    """Writes checkpoints."""

    @abc.abstractmethod
    def reset(self, checkpoint_id: str | os.PathLike | None = None) -> None:
        """A save begins, under this name (None: the one that the writer was made with)."""

    @abc.abstractmethod
    def set_up_storage_writer(self, is_coordinator: bool, *args: object, **kwargs: object) -> None:
        """Prepare this rank."""

    @abc.abstractmethod
    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Add what the storage needs to this rank's plan."""

    @abc.abstractmethod
    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Add what the storage needs to all plans."""

    @abc.abstractmethod
    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write this rank's items."""

    @abc.abstractmethod
    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """All ranks have written: make the checkpoint visible."""

    def abandon(self) -> None:
        """The save has failed on some rank: remove what this one has written."""
        return None  # a storage that leaves no trace before it is finished has nothing to do

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike) -> bool:
        """Can this kind of storage hold a checkpoint of that name?"""
        return True

    def storage_meta(self) -> StorageMeta | None:
        """What planner and checkpoint shall know of the storage."""
        return None


class StorageReader(abc.ABC):
    """Reads checkpoints."""

    @abc.abstractmethod
    def reset(self, checkpoint_id: str | os.PathLike | None = None) -> None:
        """A load begins, of the checkpoint of this name (None: the reader's own)."""

    @abc.abstractmethod
    def read_metadata(self, *args: object, **kwargs: object) -> Metadata:
        """What the checkpoint says of itself."""

    @abc.abstractmethod
    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: object, **kwargs: object
    ) -> None:
        """Prepare this rank."""

    @abc.abstractmethod
    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Add what the storage needs to this rank's plan."""

    @abc.abstractmethod
    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Add what the storage needs to all plans."""

    @abc.abstractmethod
    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read this rank's items."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike) -> bool:
        """Can this kind of storage hold a checkpoint of that name?"""
        return True
