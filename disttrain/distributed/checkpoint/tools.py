"""What can be asked of checkpoints on the disk, and done to them, without a running program.

``disttrain ckpt`` prints what these return. Whatever is written is written as any checkpoint is:
whole or not at all. Knows folders and manifests; prints nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...core import Size, Tensor
from ...core.tensor import wrap
from ...errors import ConfigError, DisttrainError, SerializationError
from ...futures import Future
from ...serialize import inspect
from ...serialize.packed import unpack
from .agreement import Together
from .default_planner import EmptyStateDictLoadPlanner
from .files import folder
from .files.manifest import Manifest, Place
from .files.pytorch import opened
from .files.reading import Files
from .filesystem import FileSystemReader, FileSystemWriter, read_manifest
from .metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    MetadataIndex,
    TensorStorageMetadata,
)
from .planner import SavePlan
from .state_dict_loader import read
from .state_dict_saver import write


@dataclass
class Row:
    """One checkpoint of a folder. ``problem``: why it cannot be loaded, or empty."""

    path: str
    world_size: int = 0
    tensors: int = 0
    objects: int = 0
    num_bytes: int = 0
    left_over: int = 0  # bytes of files that belong to no finished save
    problem: str = ""


def find(path: str) -> list[str]:
    """The checkpoints that are ``path`` or lie in it, at most two folders down."""
    found = []
    for depth, at in _walk(path, 2):
        names = _names(at)
        if {folder.MANIFEST, folder.METADATA} & {*names} or (depth and folder.leftovers(at, ())):
            found.append(at)
    return sorted(found)


def _names(path: str) -> list[str]:
    """What is in a folder; a program that runs may have deleted it."""
    try:
        return sorted(os.listdir(path))
    except FileNotFoundError:
        return []


def _walk(path: str, depth: int) -> Iterator[tuple[int, str]]:
    if depth == 2 and not os.path.isdir(path):
        raise ConfigError(f"checkpoint: {path} is no folder")
    yield 2 - depth, path
    if depth:
        for at in (os.path.join(path, name) for name in _names(path)):
            if os.path.isdir(at) and not os.path.islink(at):
                yield from _walk(at, depth - 1)


def summary(path: str) -> Row:
    """What lies in the folder of one checkpoint."""
    try:
        about = read_manifest(path)
    except DisttrainError as error:
        return Row(path, left_over=_size(path, folder.leftovers(path, ())), problem=str(error))
    kinds = list(about.metadata.state_dict_metadata.values())
    objects = sum(isinstance(k, BytesStorageMetadata) for k in kinds)
    rest = _size(path, folder.leftovers(path, about.files))
    num_bytes = sum(about.files.values())
    return Row(path, about.world_size, len(kinds) - objects, objects, num_bytes, rest)


def _size(path: str, names: list[str]) -> int:
    total = 0
    for name in names:
        with contextlib.suppress(FileNotFoundError):  # it was deleted meanwhile
            total += os.stat(os.path.join(path, name)).st_size
    return total


# --- looking --------------------------------------------------------------------------------------


def values(path: str, keys: list[str] | None = None) -> dict[str, Any]:
    """The whole checkpoint as a nested dict, or what lies under ``keys``, checked."""
    out: dict[str, Any] = {}
    planner = EmptyStateDictLoadPlanner(keys)
    read(lambda: out, FileSystemReader(path), Together(None), planner)
    if keys and not out:
        raise ConfigError(f"checkpoint: {path} has nothing under {', '.join(keys)}")
    return out


def verify(path: str) -> tuple[Manifest, list[str]]:
    """Read every byte of a checkpoint; what is wrong with it, one sentence for each thing."""
    about = read_manifest(path)
    wrong: list[str] = []
    places: dict[MetadataIndex, Place] = about.metadata.storage_data
    for name in () if about.archives else about.files:
        try:
            inspect(os.path.join(path, name))
        except (DisttrainError, OSError) as error:
            wrong.append(str(error))
    with opened(path, about, True) as files:
        for index, place in places.items():
            try:
                files.check(place, index.fqn)
            except (DisttrainError, OSError) as error:
                wrong.append(str(error))
    return about, list(dict.fromkeys(wrong))


@dataclass
class Difference:
    """What two checkpoints do not have in common. ``changed``: a sentence for each value."""

    only_first: list[str] = field(default_factory=list)
    only_second: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    equal: int = 0

    def __bool__(self) -> bool:
        return bool(self.only_first or self.only_second or self.changed)


def diff(first: str, second: str, ignore: tuple[str, ...] = ()) -> Difference:
    """Compare two checkpoints bit by bit, value by value, however each is split."""
    a, b = read_manifest(first), read_manifest(second)
    names_a, names_b = ({n for n in m.metadata.state_dict_metadata if not n.startswith(ignore)}
                        for m in (a, b))  # fmt: skip
    out = Difference(sorted(names_a - names_b), sorted(names_b - names_a))
    with opened(first, a, True) as of_a, opened(second, b, True) as of_b:
        for name in sorted(names_a & names_b):
            said = _compared(name, (a, of_a), (b, of_b))
            out.equal += not said
            if said:
                out.changed.append(f"{name}: {said}")
    return out


def _compared(name: str, *sides: tuple[Manifest, Files]) -> str:
    kinds: list[Any] = [m.metadata.state_dict_metadata[name] for m, _ in sides]
    if type(kinds[0]) is not type(kinds[1]):
        return "a tensor in one, none in the other"
    if isinstance(kinds[0], BytesStorageMetadata):
        texts = [f.whole(m.metadata.storage_data[MetadataIndex(name)], name) for m, f in sides]
        if texts[0] == texts[1]:
            return ""
        return " and ".join(readable(t)[:80] for t in texts)
    told = [(k.properties.dtype, tuple(k.size)) for k in kinds]
    if told[0] != told[1]:
        return " and ".join(f"{list(size)} of {dtype}" for dtype, size in told)
    x, y = (whole(m, f, name).array for m, f in sides)
    if x.tobytes() == y.tobytes():
        return ""
    bits = [a.reshape(-1).view(np.uint8).reshape(x.size, -1) for a in (x, y)]
    count = int((bits[0] != bits[1]).any(1).sum())
    return f"{count} of {x.size} elements differ, by {_gap(x, y).max():.3g} at most"


def _gap(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype.kind in "iu":  # which float64 cannot tell from each other where they are large
        return np.maximum(x, y).astype(np.uint64) - np.minimum(x, y).astype(np.uint64)
    wide = np.complex128 if x.dtype.kind == "c" else np.float64
    return np.abs(x.astype(wide) - y.astype(wide))


def readable(packed: bytes) -> str:
    """A packed value as text."""
    try:
        return repr(unpack(packed, "diff"))
    except SerializationError:  # it holds objects of classes that are not allowed here
        return repr(packed)


def whole(about: Manifest, files: Files, name: str) -> Tensor:
    """One tensor of a checkpoint, put together."""
    told = about.metadata.state_dict_metadata[name]
    assert isinstance(told, TensorStorageMetadata)
    kind = told.properties.dtype.np
    out = np.empty(tuple(told.size), kind)
    for chunk in told.chunks:
        at, size = tuple(chunk.offsets), tuple(chunk.sizes)
        box: tuple[Any, ...] = (..., *(slice(a, a + n) for a, n in zip(at, size)))  # also of 0-d
        part = wrap(out[box])
        place = about.metadata.storage_data[MetadataIndex(name, chunk.offsets)]
        files.fill(part, place, name, kind, size, ((0,) * len(size), size))
    return wrap(out)


# --- changing -------------------------------------------------------------------------------------


class Cut:
    """A tensor of which every rank holds some rows: what ``reshard`` saves."""

    def __init__(self, full: Tensor, ranks: int) -> None:
        self.full, self.dtype = full, full.dtype
        self.requires_grad = full.requires_grad
        rows = full.shape[0] if full.ndim else 1
        each = -(-rows // ranks)
        self.cuts = [(k, min(each, rows - k)) for k in range(0, rows, each)] if each else [(0, 0)]

    def size(self) -> Size:
        return Size(self.full.shape)

    def __create_chunk_list__(self) -> list[ChunkStorageMetadata]:
        shape = tuple(self.full.shape)
        if not shape:
            return [ChunkStorageMetadata(Size(()), Size(()))]
        return [
            ChunkStorageMetadata(Size((at, *(0,) * (len(shape) - 1))), Size((n, *shape[1:])))
            for at, n in self.cuts
        ]

    def __get_tensor_shard__(self, index: MetadataIndex) -> Tensor:
        if not self.full.ndim:
            return self.full
        at = (index.offset or (0,))[0]
        return wrap(self.full.array[at : at + dict(self.cuts)[at]])


class _ByRank(FileSystemWriter):
    """Writes what one process holds as the files of several ranks."""

    def __init__(self, path: str, ranks: int) -> None:
        super().__init__(path)
        self.ranks = ranks

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        told = super().prepare_global_plan([plans[0]] * self.ranks)[0].storage_data
        return [SavePlan(plans[0].items, told, plans[0].planner_data)]

    def write_data(self, plan: SavePlan, planner: Any) -> Any:
        parts: list[list[Any]] = [[] for _ in range(self.ranks)]
        load = [0] * self.ranks
        for item in plan.items:
            size = item.tensor_storage_size() or 0
            index = item.index.index or 0
            cut = item.tensor_data is not None and item.tensor_data.size != (
                item.tensor_data.chunk.sizes
            )
            rank = index if cut else min(range(self.ranks), key=lambda r: load[r])
            load[rank] += size
            parts[rank].append(item)
        results: list[Any] = []
        for rank, items in enumerate(parts):
            told = {**plan.storage_data, "rank": rank}
            results += super().write_data(SavePlan(items, told), planner).wait()
        done: Future[list[Any]] = Future()
        done.set_result(results)
        return done

    def finish(self, metadata: Any, results: list[list[Any]]) -> None:
        empty: list[list[Any]] = [[] for _ in range(self.ranks - 1)]
        super().finish(metadata, [*results, *empty])


def reshard(source: str, target: str, ranks: int) -> Manifest:
    """Write the checkpoint ``source`` again as ``ranks`` ranks would have written it, every tensor
    cut along its first dimension. (Any checkpoint can be loaded by any number of ranks; this is for
    files of another size.)"""
    if ranks < 1:
        raise ConfigError(f"reshard: {ranks} ranks given; one or more are needed")
    _apart(source, target)
    out = _cut(values(source), ranks)
    write(lambda: out, _ByRank(target, ranks), Together(None), None)
    return read_manifest(target)


def _cut(value: object, ranks: int) -> Any:
    if isinstance(value, Tensor):
        return Cut(value, ranks)
    if isinstance(value, dict):
        return {k: _cut(v, ranks) for k, v in value.items()}
    return [_cut(v, ranks) for v in value] if type(value) is list else value


def _apart(source: str, target: str) -> None:
    if os.path.exists(os.path.join(target, folder.MANIFEST)):
        raise ConfigError(f"{target} holds a checkpoint already; name another folder")
    if os.path.realpath(source) == os.path.realpath(target):
        raise ConfigError(f"{target} is the source itself; name another folder")


def remove(path: str) -> None:
    """Remove a checkpoint: first it is none any more, then its files go; the folder, too, if
    nothing else is in it."""
    about = read_manifest(path)
    for name in (folder.METADATA if about.archives else folder.MANIFEST, *about.files):
        os.unlink(os.path.join(path, name))
    folder.collect(path, folder.leftovers(path, ()))
    if not os.listdir(path):
        os.rmdir(path)


def collect(path: str, dry: bool = False) -> list[tuple[str, int]]:
    """Remove what killed saves have left in ``path`` and up to two folders down; each file with its
    bytes. Files of saves that are running stay, and so does all beside a damaged manifest."""
    gone = []
    for _, at in _walk(path, 2):
        try:
            named = set(read_manifest(at).files)
        except ConfigError:
            named = set()
        except SerializationError:
            continue
        left = folder.collect(at, folder.leftovers(at, named), dry)
        gone += [(os.path.join(at, name), size) for name, size in left]
    return gone
