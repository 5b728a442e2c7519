"""Copies of a state dict for a save that runs beside the program.

The copies' memory is kept from save to save as long as the values keep their shapes and types, so
the second save allocates nothing. Knows tensors and nested dicts; no plan and no file.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ... import context
from ...core import Size, Tensor, wrap
from .flat import Index, Path
from .metadata import STATE_DICT_TYPE, ChunkStorageMetadata, MetadataIndex
from .pieces import piece, pieces_of

_SLOT = "checkpoint.staging"


@runtime_checkable
class AsyncStager(Protocol):
    """Copies a state dict, so that the program may go on to change the original."""

    def stage(self, state_dict: STATE_DICT_TYPE) -> Any:
        """The copy, or a future of it."""

    def close(self) -> None:
        """Give the memory back."""


class Staged:
    """A copy of the pieces that this rank holds of a sharded tensor."""

    def __init__(self, size: Size, dtype: Any, grad: bool, pieces: dict[Path, Tensor]) -> None:
        self._size, self.dtype, self.requires_grad = size, dtype, grad
        self._pieces = pieces

    def size(self) -> Size:
        return self._size

    def __create_chunk_list__(self) -> list[ChunkStorageMetadata]:
        return [ChunkStorageMetadata(Size(at), Size(t.shape)) for at, t in self._pieces.items()]

    def __get_tensor_shard__(self, index: MetadataIndex) -> Tensor:
        return self._pieces[tuple(index.offset or ())]


class DefaultStager:
    """Copies into memory that the rank keeps for it."""

    def __init__(self, config: Any = None) -> None:
        self.config = config

    def stage(self, state_dict: STATE_DICT_TYPE) -> STATE_DICT_TYPE:
        kept: dict[Path, np.ndarray] = context.current().slot(_SLOT, dict)
        used: dict[Path, np.ndarray] = {}
        seen: dict[int, Any] = {}
        out = {k: _copied(v, (k,), kept, used, seen) for k, v in state_dict.items()}
        for path in kept.keys() - used.keys():
            del kept[path]
        kept.update(used)
        return out

    def close(self) -> None:
        context.current().slot(_SLOT, dict).clear()


BlockingAsyncStager = DefaultStager


def _copied(value: Any, path: Path, kept: dict, used: dict, seen: dict[int, Any]) -> Any:
    if id(value) in seen and not isinstance(value, (int, float, str)):
        return seen[id(value)]
    held = pieces_of(value)
    if held is not None:
        done = [
            (at, _tensor(piece(value, "", at), (*path, at), kept, used)) for at, _ in held.boxes
        ]
        if held.whole:
            out: Any = done[0][1]
            if held.properties.requires_grad:
                out.requires_grad_()
        else:
            told = held.properties
            out = Staged(Size(held.size), told.dtype, told.requires_grad, dict(done))
    elif isinstance(value, Mapping):
        out = {k: _copied(v, (*path, k), kept, used, seen) for k, v in value.items()}
    elif isinstance(value, list):
        out = [_copied(v, (*path, Index(i)), kept, used, seen) for i, v in enumerate(value)]
    else:
        out = copy.deepcopy(value)
    seen[id(value)] = out
    return out


def _tensor(source: Tensor, key: Path, kept: dict, used: dict) -> Tensor:
    array = source.array
    if source.is_meta:
        return source
    memory = kept.get(key)
    if memory is None or memory.shape != array.shape or memory.dtype != array.dtype:
        memory = np.empty(array.shape, array.dtype)
    np.copyto(memory, array)
    used[key] = memory
    return wrap(memory)
