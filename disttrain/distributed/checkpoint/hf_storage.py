"""Folders of safetensors files as other libraries write them, with or without an index.

    model-00001-of-00002.safetensors  model-00002-of-00002.safetensors
    model.safetensors.index.json      {"weight_map": {name: file}}

The reader serves ``load``: any number of ranks take the byte ranges that they need. Such files need
not have checksums; headers and sizes are checked, and names of files may name nothing outside the
folder. The writer serves ``save``: the ranks write their pieces, then the coordinator makes files
of whole tensors of them.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from typing import Any

import numpy as np

from ...core import Size
from ...core.types import dtypes
from ...errors import ConfigError, SerializationError
from ...futures import Future
from ...serialize import inspect, save
from ...serialize.files import write_file
from ...serialize.layout import load_json
from . import tools
from .files import reading
from .files.folder import of_pytorch
from .files.manifest import Place
from .filesystem import FileSystemWriter, read_manifest
from .metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from .planner import LoadPlan, LoadPlanner
from .storage import StorageReader, WriteResult

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*\.safetensors\Z")
_INDEX_CAP = 64 << 20


class HuggingFaceStorageReader(StorageReader):
    """Reads the safetensors files of the folder ``path``, or those that an index names."""

    def __init__(self, path: str | os.PathLike, thread_count: int = 1, **options: Any) -> None:
        self.path = os.fspath(path)
        self.sizes: dict[str, int] = {}
        self.metadata: Metadata | None = None

    @property
    def checkpoint_id(self) -> str:
        return self.path

    @property
    def _folder(self) -> str:
        return self.path if os.path.isdir(self.path) else os.path.dirname(self.path) or "."

    def reset(self, checkpoint_id: str | os.PathLike | None = None) -> None:
        if checkpoint_id is not None:
            self.path = os.fspath(checkpoint_id)
        self.sizes, self.metadata = {}, None

    def read_metadata(self, *args: object, **kwargs: object) -> Metadata:
        wanted = self._files()
        about: dict[str, Any] = {}
        places: dict[MetadataIndex, Place] = {}
        for file in sorted(set(wanted.values()) if wanted else self._all()):
            path = os.path.join(self._folder, file)
            header = inspect(path)
            self.sizes[file] = os.stat(path).st_size
            for name, entry in header.entries.items():
                if wanted and wanted.get(name) != file:
                    continue
                if name in about:
                    raise SerializationError(f"{path}: tensor {name!r:.80} stands in two files")
                shape, zero = Size(entry.shape), Size((0,) * len(entry.shape))
                told = TensorProperties(dtypes.of(np.dtype(entry.dtype)))
                about[name] = TensorStorageMetadata(
                    told, shape, [ChunkStorageMetadata(zero, shape)]
                )
                begin = header.start
                places[MetadataIndex(name, zero)] = Place(
                    file, begin + entry.begin, begin + entry.end, ""
                )
        lost = sorted(wanted.keys() - about.keys())
        if lost:
            raise SerializationError(
                f"{self.path}: {len(lost)} tensors are named and in no file: {', '.join(lost[:8])}"
            )
        self.metadata = Metadata(about, None, places)
        return self.metadata

    def _files(self) -> dict[str, str]:
        """The file of every tensor, as the index says; empty where there is none."""
        path = self.path
        if os.path.isdir(path):
            found = sorted(n for n in os.listdir(path) if n.endswith(".safetensors.index.json"))
            if not found:
                return {}
            path = os.path.join(path, found[0])
        if not os.path.isfile(path) or os.stat(path).st_size > _INDEX_CAP:
            raise ConfigError(f"load: {path}: no folder, and no index of safetensors files")
        with open(path, "rb") as f:
            told = load_json(f.read(), path)
        table = told.get("weight_map") if type(told) is dict else None
        if type(table) is not dict:
            raise SerializationError(f"{path}: an index needs a weight_map")
        for name in table.values():
            if type(name) is not str or not _NAME.match(name):
                raise SerializationError(f"{path}: {name!r:.80} is no name of a file beside it")
        return table

    def _all(self) -> list[str]:
        names = [n for n in os.listdir(self._folder) if _NAME.match(n)]
        if not names:
            why = of_pytorch(self._folder)
            raise ConfigError(
                f"load: {self._folder} holds no safetensors files" + (why and f": {why}")
            )
        return names

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: object, **kwargs: object
    ) -> None:
        pass

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return replace(plan, storage_data=sorted(self.sizes.items()))

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        if any(p.storage_data != plans[0].storage_data for p in plans):
            raise SerializationError(f"load: {self.path}: the ranks see different files there")
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        assert self.metadata is not None
        with reading.Files(self._folder, self.sizes, False) as files:
            reading.follow(plan, planner, self.metadata, files)
        done: Future[None] = Future()
        done.set_result(None)
        return done


class HuggingFaceStorageWriter(FileSystemWriter):
    """Writes whole tensors as ``model-00001-of-00002.safetensors`` with an index into the folder
    ``path``. ``fqn_to_index_mapping`` says in which file each tensor is (from 1 on; default: all in
    one). What is no tensor has no place in such files: ``ConfigError``.

    Whatever split the ranks hold, whole tensors come out, so ``save_distributed`` and
    ``enable_consolidation`` change nothing.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        fqn_to_index_mapping: dict[str, int] | None = None,
        thread_count: int = 1,
        save_distributed: bool = False,
        enable_consolidation: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(path)
        self.numbers = fqn_to_index_mapping

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        loose = [n for n, about in metadata.state_dict_metadata.items()
                 if not isinstance(about, TensorStorageMetadata)]  # fmt: skip
        if loose:
            raise ConfigError(
                f"save: {', '.join(loose[:8])}: safetensors files of this kind hold tensors alone; "
                "leave these values out, or use FileSystemWriter"
            )
        names = list(metadata.state_dict_metadata)
        numbers = dict.fromkeys(names, 1) if self.numbers is None else self.numbers
        lost = [n for n in names if n not in numbers]
        if lost:
            raise ConfigError(
                f"save: fqn_to_index_mapping names no file for {', '.join(lost[:8])}; it needs "
                "every tensor of the state dict"
            )
        super().finish(metadata, results)
        if self.scratch:
            return  # what the other ranks have written is not here
        about = read_manifest(self.path)
        last = max(numbers.values(), default=1)
        table = {n: f"model-{numbers[n]:05d}-of-{last:05d}.safetensors" for n in names}
        with reading.Files(self.path, about.files, True) as files:
            for file in sorted(set(table.values())):
                held = {n: tools.whole(about, files, n) for n in names if table[n] == file}
                save(held, os.path.join(self.path, file))
        size = sum(p.end - p.begin for p in about.metadata.storage_data.values())
        _write_index(self.path, table, size)
        tools.remove(self.path)


def _write_index(path: str, table: dict[str, str], size: int) -> None:
    """In one step, after the files that it names."""
    told = {"metadata": {"total_size": size}, "weight_map": table}
    text = json.dumps(told, indent=1).encode()
    write_file(os.path.join(path, "model.safetensors.index.json"), [text], len(text))
