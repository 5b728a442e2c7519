"""Between checkpoints in folders and single files, and from the files of other libraries.

All is data: a file that is a pickle is refused with a sentence on how to convert it where PyTorch
is installed.
"""

from __future__ import annotations

import os
from typing import Any

from ...core import Size, Tensor
from ...errors import ConfigError
from ...futures import Future
from ...ops import api
from ...serialize import load, save
from .agreement import Together
from .default_planner import DefaultLoadPlanner, EmptyStateDictLoadPlanner
from .files.folder import of_pytorch
from .filesystem import FileSystemReader, FileSystemWriter, read_manifest
from .hf_storage import HuggingFaceStorageReader
from .metadata import ChunkStorageMetadata, Metadata, TensorStorageMetadata
from .planner import LoadPlan, LoadPlanner, ReadItem
from .state.flat import flatten_state_dict
from .state.pieces import pieces_of
from .state_dict_loader import read
from .state_dict_saver import write
from .storage import StorageReader


class BroadcastingTorchSaveReader(StorageReader):
    """Reads the file of a ``save`` as a checkpoint of tensors, for ``DynamicMetaLoadPlanner``.

    Every rank maps the file and takes from it what it needs, so nothing has to be sent.
    """

    def __init__(
        self, checkpoint_id: str | os.PathLike | None = None, coordinator_rank: int = 0
    ) -> None:
        self.checkpoint_id, self.coordinator_rank = checkpoint_id, coordinator_rank

    def reset(self, checkpoint_id: str | os.PathLike | None = None) -> None:
        if checkpoint_id is not None:
            self.checkpoint_id = checkpoint_id

    def read_metadata(self, *args: object, **kwargs: object) -> Metadata:
        """Nothing: the planner makes it of what is asked for."""
        return Metadata({})

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: object, **kwargs: object
    ) -> None:
        if self.checkpoint_id is None:
            raise ConfigError("load: no checkpoint_id given; name the file that save has written")

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        flat, _ = flatten_state_dict(load(self.checkpoint_id))
        asked: Metadata | None = getattr(planner, "metadata", None)
        about = {} if asked is None else asked.state_dict_metadata
        for item in plan.items:
            name = item.storage_index.fqn
            target: Any = planner.resolve_tensor(item)
            target.copy_(self._part(flat.get(name), item, about.get(name)))
            planner.commit_tensor(item, target)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _part(self, found: object, item: ReadItem, asked: object) -> Tensor:
        """The part of a tensor of the file that is read."""
        where = f"load: {self.checkpoint_id}: {item.storage_index.fqn!r}"
        if not isinstance(found, Tensor):
            what = "is not there" if found is None else f"is a {type(found).__name__}"
            raise ConfigError(f"{where} {what}; needed: a tensor")
        if isinstance(asked, TensorStorageMetadata) and tuple(asked.size) != tuple(found.shape):
            raise ConfigError(
                f"{where} has the shape {list(found.shape)}; {list(asked.size)} is needed"
            )
        for dim, (at, size) in enumerate(zip(item.storage_offsets, item.lengths)):
            found = api.narrow(found, dim, at, size)
        return found

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike) -> bool:
        return os.path.isfile(checkpoint_id)


class DynamicMetaLoadPlanner(DefaultLoadPlanner):
    """For files that say nothing of their pieces: takes them to be what the state dict asks for.
    Tensors alone; ``ConfigError`` names what is none."""

    def set_up_planner(
        self,
        state_dict: dict[str, Any],
        metadata: Metadata | None = None,
        is_coordinator: bool = False,
    ) -> None:
        super().set_up_planner(state_dict, None, is_coordinator)
        about: dict[str, Any] = {}
        for name, value in self.state_dict.items():
            held = pieces_of(value)
            if held is None:
                raise ConfigError(
                    f"load: {name!r} is a {type(value).__name__}; only tensors can be loaded from "
                    "such a file, take the others from load(file)"
                )
            size = Size(held.size)
            whole = ChunkStorageMetadata(Size([0] * len(size)), size)
            about[name] = TensorStorageMetadata(held.properties, size, [whole])
        self.metadata = Metadata(about)


def dcp_to_torch_save(
    dcp_checkpoint_dir: str | os.PathLike, torch_save_path: str | os.PathLike
) -> None:
    """Put the checkpoint of a folder into one file, which ``load`` reads as the nested state dict;
    tensors stand in it under their flat names, for other readers of safetensors."""
    consolidate(dcp_checkpoint_dir, torch_save_path)


def torch_save_to_dcp(
    torch_save_path: str | os.PathLike, dcp_checkpoint_dir: str | os.PathLike
) -> None:
    """Make a checkpoint of what ``save`` has written to one file."""
    write(lambda: load(torch_save_path), FileSystemWriter(dcp_checkpoint_dir), Together(None), None)


def consolidate(
    source: str | os.PathLike, file: str | os.PathLike, key: str | None = None
) -> dict[str, Any]:
    """One safetensors file of the checkpoint ``source``, or of what lies under ``key`` of it, under
    names without ``key``. Returns what was saved."""
    state: dict[str, Any] = {}
    planner = EmptyStateDictLoadPlanner(None if key is None else [key])
    read(lambda: state, FileSystemReader(source), Together(None), planner)
    for part in () if key is None else key.split("."):
        if not isinstance(state, dict) or part not in state:
            names = read_manifest(os.fspath(source)).metadata.state_dict_metadata
            first = ", ".join(sorted({name.split(".")[0] for name in names}))
            raise ConfigError(
                f"consolidate: {os.fspath(source)} has nothing under {key!r}; on top it has "
                f"{first or 'no values at all':.300}. Name one of these, or a path of names with "
                "dots (disttrain ckpt show lists all)"
            )
        state = state[part]
    save(state, file)
    return state


def import_files(
    source: str | os.PathLike, target: str | os.PathLike, key: str | None = None
) -> Metadata:
    """Make a checkpoint of ``source``: a safetensors file, the index of several of them
    (``*.index.json``), a folder with either, or one that PyTorch's distributed checkpoints wrote.
    With ``key``, names get it in front."""
    where = os.fspath(source)
    state: dict[str, Any] = {}
    if os.path.isfile(where) and not where.endswith(".json"):
        state = load(where)
    else:
        reader = FileSystemReader(where) if of_pytorch(where) else HuggingFaceStorageReader(where)
        read(lambda: state, reader, Together(None), EmptyStateDictLoadPlanner())
    for part in reversed(key.split(".")) if key else ():
        state = {part: state}
    return write(lambda: state, FileSystemWriter(target), Together(None), None)
