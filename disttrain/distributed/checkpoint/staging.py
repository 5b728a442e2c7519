"""Copies of a state dict for a save that runs beside the program.

The copies' memory is kept from save to save as long as the values keep their shapes and types, so
the second save allocates nothing. Knows tensors and nested dicts; no plan and no file.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ... import context
from ...backends.device.memory import memory_of
from ...core import Size, Tensor, wrap
from ...core.annotations import DTypeLike
from .metadata import STATE_DICT_TYPE, ChunkStorageMetadata, MetadataIndex
from .state.flat import Index, Path
from .state.pieces import piece, pieces_of

_SLOT = "checkpoint.staging"


@runtime_checkable
class AsyncStager(Protocol):
    """Copies a state dict, so that the program may go on to change the original."""

    def stage(self, state_dict: STATE_DICT_TYPE) -> Any:
        """The copy, or a future of it."""

    def synchronize_staging(self) -> None:
        """Until the copy is made."""

    def close(self) -> None:
        """Give the memory back."""


@dataclass
class StagingOptions:
    """How to copy. With ``use_async_staging`` the copy comes as a future, and ``async_save`` gives
    futures of copy and save; the others are taken for programs that name them: memory that this
    process computes on needs neither pinning nor sharing."""

    use_pinned_memory: bool = True
    use_shared_memory: bool = True
    use_async_staging: bool = True
    use_non_blocking_copy: bool = True


class Staged:
    """A copy of the pieces that this rank holds of a sharded tensor."""

    def __init__(
        self, size: Size, dtype: DTypeLike | None, grad: bool, pieces: dict[Path, Tensor]
    ) -> None:
        self._size, self.dtype, self.requires_grad = size, dtype, grad
        self._pieces = pieces

    def size(self) -> Size:
        return self._size

    def __create_chunk_list__(self) -> list[ChunkStorageMetadata]:
        return [ChunkStorageMetadata(Size(at), Size(t.shape)) for at, t in self._pieces.items()]

    def __get_tensor_shard__(self, index: MetadataIndex) -> Tensor:
        return self._pieces[tuple(index.offset or ())]


class _Stager:
    """Copies into memory that ``kept`` has from the copy before."""

    def __init__(self) -> None:
        self.kept: dict[Path, np.ndarray] = {}

    def copied(self, state_dict: STATE_DICT_TYPE) -> STATE_DICT_TYPE:
        kept = self.kept
        used: dict[Path, np.ndarray] = {}
        seen: dict[int, tuple[Any, Any]] = {}
        out = {k: _copied(v, (k,), kept, used, seen) for k, v in state_dict.items()}
        for place in {memory_of(t.array) for t, _ in seen.values() if isinstance(t, Tensor)}:
            place.settle()  # a device copies while others are begun
        for path in kept.keys() - used.keys():
            del kept[path]
        kept.update(used)
        return out

    def synchronize_staging(self) -> None:
        """Nothing to wait for: a copy that was asked for is made."""

    def close(self) -> None:
        """Give the memory back."""
        self.kept.clear()


class DefaultStager(_Stager):
    """Copies into memory of its own, which the next copy overwrites."""

    def __init__(self, config: StagingOptions | None = None) -> None:
        super().__init__()
        self.config = StagingOptions() if config is None else config

    def stage(self, state_dict: STATE_DICT_TYPE, **kwargs: object) -> Any:
        """The copy; a future of it where the options say so."""
        if not self.config.use_async_staging:
            return self.copied(state_dict)
        future: Future[STATE_DICT_TYPE] = Future()
        try:
            future.set_result(self.copied(state_dict))
        except Exception as error:
            future.set_exception(error)
        return future


class BlockingAsyncStager(_Stager):
    """Copies, and has the copy when it returns. ``cache_staged_state_dict``: the next copy uses the
    memory of this one again."""

    def __init__(self, cache_staged_state_dict: bool = False, type_check: bool = False) -> None:
        super().__init__()
        self.cache_staged_state_dict, self.type_check = cache_staged_state_dict, type_check

    def stage(self, state_dict: STATE_DICT_TYPE) -> STATE_DICT_TYPE:
        """The copy."""
        if not self.cache_staged_state_dict:
            self.kept = {}
        return self.copied(state_dict)


class KeptStager(_Stager):
    """What ``async_save`` uses unless it is given another: one for all saves of a rank, which never
    overlap."""

    def stage(self, state_dict: STATE_DICT_TYPE) -> STATE_DICT_TYPE:
        """The copy."""
        return self.copied(state_dict)

    @staticmethod
    def of_rank() -> KeptStager:
        """This rank's."""
        return context.current().slot(_SLOT, KeptStager)


def _copied(value: Any, path: Path, kept: dict, used: dict, seen: dict[int, tuple]) -> Any:
    """The copy of a value; what stands in several places is copied once. ``seen`` holds on to the
    values, so that no number is used again."""
    if id(value) in seen:
        return seen[id(value)][1]
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
    elif isinstance(value, list) or type(value) is tuple:
        parts = [_copied(v, (*path, Index(i)), kept, used, seen) for i, v in enumerate(value)]
        out = parts if isinstance(value, list) else tuple(parts)
    else:
        out = copy.deepcopy(value)
    seen[id(value)] = (value, out)
    return out


def _tensor(source: Tensor, key: Path, kept: dict, used: dict) -> Tensor:
    array = source.array
    if source.is_meta:
        return source
    where, memory = memory_of(array), kept.get(key)
    if memory is None or memory.shape != array.shape or memory.dtype != array.dtype:
        memory = where.pinned(array.shape, array.dtype)
    where.copy_to(memory, where.raw(array))
    used[key] = memory
    return wrap(memory)
