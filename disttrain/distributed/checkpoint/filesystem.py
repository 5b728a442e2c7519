"""Checkpoints in folders: ``FileSystemWriter`` and ``FileSystemReader``.

Every rank writes what it was told to as a safetensors file of its own and hashes on the way; the
coordinator commits the manifest (``folder`` says how). A reader takes only the byte ranges that
this rank needs, and checks each before it hands out a number.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ...context import REPLAYED_SLOT, drawn, thread
from ...errors import ConfigError, SerializationError
from ...futures import Future
from .files import folder, manifest, pytorch, reading
from .files.folder import Shard
from .files.shards import Part, write_shard
from .metadata import STATE_DICT_TYPE, Metadata, MetadataIndex, StorageMeta
from .planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner
from .staging import KeptStager
from .storage import StorageReader, StorageWriter, WriteResult


class FileSystemWriter(StorageWriter):
    """Writes checkpoints into the folder ``path``. A checkpoint that is there is replaced in one
    step, once the new one is whole (``overwrite=False``: it is an error).

    ``single_file_per_rank=False`` gives every value a file. ``sync_files=False`` does not wait for
    the disk: faster, and a power cut may lose the checkpoint (a crash of the program does not). The
    other arguments are taken for programs that name them.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        single_file_per_rank: bool = True,
        sync_files: bool = True,
        thread_count: int = 1,
        per_thread_copy_ahead: int = 10_000_000,
        cache_staged_state_dict: bool = False,
        overwrite: bool = True,
        **options: Any,
    ) -> None:
        self.path = os.fspath(path)
        self.single_file_per_rank, self.sync_files = single_file_per_rank, sync_files
        self.overwrite = overwrite
        self.stager = KeptStager.of_rank()
        self.shards: list[Shard] = []
        self.save = ""
        self.made = False  # did this save make the folder?
        self.is_coordinator = False
        self.scratch = ""  # where a rank that runs again alone writes

    @property
    def place(self) -> str:
        """The folder that is written into."""
        return self.scratch or self.path

    @property
    def checkpoint_id(self) -> str:
        return self.path

    def stage(self, state_dict: STATE_DICT_TYPE) -> STATE_DICT_TYPE:
        """The copy that ``async_save`` writes. For subclasses to change."""
        return self.stager.stage(state_dict)

    def synchronize_staging(self) -> None:
        """The copy is made when ``stage`` returns."""

    def close(self) -> None:
        """Give the copy's memory back."""
        self.stager.close()

    def reset(self, checkpoint_id: str | os.PathLike | None = None) -> None:
        if checkpoint_id is not None:
            self.path = os.fspath(checkpoint_id)
        self.let_go()
        self.save, self.made = "", False

    def set_up_storage_writer(self, is_coordinator: bool, *args: object, **kwargs: object) -> None:
        self.is_coordinator = is_coordinator

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        self.made = bool(drawn("made", folder.make(self.place)))
        there = drawn("there", os.path.exists(os.path.join(self.place, folder.MANIFEST)))
        if there and not self.overwrite:
            raise ConfigError(
                f"save: Checkpoint already exists in {self.path} and self.overwrite=False; name "
                "another folder"
            )
        return replace(plan, storage_data=self.made)

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        made = any(p.storage_data is True for p in plans)
        folder.collect(self.place, folder.leftovers(self.place, self._named()))
        told = {"save": folder.new_save(len(plans) > 1), "world_size": len(plans), "made": made}
        return [replace(p, storage_data={**told, "rank": r}) for r, p in enumerate(plans)]

    def _named(self) -> dict[str, int]:
        """The files of the checkpoint that is there; a damaged manifest keeps all files."""
        try:
            return read_manifest(self.place).files
        except ConfigError:
            return {}
        except SerializationError:
            return dict.fromkeys(folder.leftovers(self.place, ()), 0)

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        told = plan.storage_data
        self.save, self.made = told["save"], told["made"]
        groups = [plan.items] if self.single_file_per_rank else [[i] for i in plan.items]
        results: list[WriteResult] = []
        for k, items in enumerate(g for g in groups if g):
            number = None if self.single_file_per_rank else k
            name = folder.shard_name(self.save, told["rank"], told["world_size"], number)
            parts = [Part(item, planner.resolve_data(item)) for item in items]
            shard, places = write_shard(self.place, name, parts, self.shards.append)
            for part, place in zip(parts, places, strict=True):
                results.append(WriteResult(part.item.index, place.end - place.begin, place))
            if self.sync_files:
                shard.sync()
        done: Future[list[WriteResult]] = Future()
        done.set_result(results)
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        places: dict[MetadataIndex, Any] = {r.index: r.storage_data for rank in results
                                            for r in rank}  # fmt: skip
        files: dict[str, int] = {}
        for place in places.values():
            files.setdefault(place.file, self._size(place.file))
        data = replace(metadata, storage_data=places)
        text = manifest.write(manifest.Manifest(self.save, len(results), files, data))
        folder.commit(self.place, self.save, text)
        self.let_go()
        folder.collect(self.place, folder.leftovers(self.place, files))

    def _size(self, file: str) -> int:
        try:
            size = os.stat(os.path.join(self.place, file)).st_size
        except FileNotFoundError:
            size = -1
        size = drawn("size", size)
        if size < 0:
            raise ConfigError(
                f"save: {os.path.join(self.path, file)} was written by another rank and is not "
                "there on this one; all ranks must share one folder"
            )
        return size

    def abandon(self, everything: bool = False) -> None:
        """Remove what this rank has written, or (``everything``) what any has, unless the save has
        become the checkpoint all the same."""
        committed = False
        with contextlib.suppress(ConfigError, SerializationError):
            committed = bool(self.save) and read_manifest(self.place).save == self.save
        for shard in self.shards:
            shard.close(remove=not committed)
        self.shards.clear()
        if everything and self.save and not committed:
            for name in folder.leftovers(self.place, ()):
                if self.save in name:
                    with contextlib.suppress(OSError):
                        os.unlink(os.path.join(self.place, name))
        if self.made and not committed:
            with contextlib.suppress(OSError):  # another rank's file is in it, or a program's own
                os.rmdir(self.place)

    def let_go(self) -> None:
        """Keep what was written, and give up the locks on it."""
        for shard in self.shards:
            shard.close(remove=False)
        self.shards.clear()

    def storage_meta(self) -> StorageMeta | None:
        return StorageMeta(checkpoint_id=self.path)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike) -> bool:
        return "://" not in os.fspath(checkpoint_id)


@contextlib.contextmanager
def aside(writer: StorageWriter, shared: bool) -> Iterator[None]:
    """The block is a save. A rank that runs again alone (``record.replay``) leaves a checkpoint
    that is ``shared`` as it is: it lacks what the others have written."""
    if not (shared and isinstance(writer, FileSystemWriter) and REPLAYED_SLOT in thread.rank.slots):
        yield
        return
    with tempfile.TemporaryDirectory(prefix="disttrain-replay-") as writer.scratch:
        try:
            yield
        finally:
            writer.let_go()
            writer.scratch = ""


def read_manifest(path: str) -> manifest.Manifest:
    """What the manifest of the checkpoint in the folder ``path`` says, or ``.metadata``."""
    name, raw = folder.read_manifest(path)
    read = manifest.read if name == folder.MANIFEST else pytorch.read
    return read(raw, os.path.join(path, name))


class FileSystemReader(StorageReader):
    """Reads the checkpoint in the folder ``path``, also one that PyTorch has written.
    ``verify=False`` compares no checksums."""

    def __init__(self, path: str | os.PathLike, verify: bool = True, **options: Any) -> None:
        self.path, self.verify = os.fspath(path), verify
        self.manifest: manifest.Manifest | None = None

    @property
    def checkpoint_id(self) -> str:
        return self.path

    def reset(self, checkpoint_id: str | os.PathLike | None = None) -> None:
        if checkpoint_id is not None:
            self.path = os.fspath(checkpoint_id)
        self.manifest = None

    def read_metadata(self, *args: object, **kwargs: object) -> Metadata:
        self.manifest = read_manifest(self.path)
        return self.manifest.metadata

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: object, **kwargs: object
    ) -> None:
        pass

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        assert self.manifest is not None
        return replace(plan, storage_data=self.manifest.save)

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        saves = [p.storage_data for p in plans]
        if len(set(saves)) > 1:
            odd = next(r for r, s in enumerate(saves) if s != saves[0])
            raise SerializationError(
                f"load: {self.path}: rank {odd} sees another checkpoint there than rank 0; it was "
                "replaced meanwhile, or the ranks do not share the folder. Load again"
            )
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        assert self.manifest is not None
        with pytorch.opened(self.path, self.manifest, self.verify) as files:
            reading.follow(plan, planner, self.manifest.metadata, files)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike) -> bool:
        return os.path.isdir(os.fspath(checkpoint_id))
