"""Between checkpoints in folders and single files, and from the files of other libraries.

All is data: a file that is a pickle is refused with a sentence on how to convert it where PyTorch
is installed.
"""

from __future__ import annotations

import os
from typing import Any

from ...errors import ConfigError
from ...serialize import load, save
from .default_planner import EmptyStateDictLoadPlanner
from .filesystem import FileSystemReader, FileSystemWriter
from .hf_storage import HuggingFaceStorageReader
from .metadata import Metadata
from .state_dict_loader import read
from .state_dict_saver import write
from .together import Together


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
            raise ConfigError(f"consolidate: {os.fspath(source)} has no {key!r}")
        state = state[part]
    save(state, file)
    return state


def import_files(
    source: str | os.PathLike, target: str | os.PathLike, key: str | None = None
) -> Metadata:
    """Make a checkpoint of ``source``: a safetensors file, the index of several of them
    (``*.index.json``), or a folder with either. With ``key``, names get it in front."""
    where = os.fspath(source)
    state: dict[str, Any] = {}
    if os.path.isfile(where) and not where.endswith(".json"):
        state = load(where)
    else:
        reader = HuggingFaceStorageReader(where)
        read(lambda: state, reader, Together(None), EmptyStateDictLoadPlanner())
    for part in reversed(key.split(".")) if key else ():
        state = {part: state}
    return write(lambda: state, FileSystemWriter(target), Together(None), None)
