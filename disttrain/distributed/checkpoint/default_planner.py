"""The planners that are used unless a program brings its own.

The pure parts are functions here: which items a rank has, who writes what several ranks hold, which
reads fill what is asked for. Knows no file.
"""

from __future__ import annotations

import dataclasses
import io
import math
from collections.abc import Iterable
from typing import Any

from ...core import Size, Tensor
from ...errors import ConfigError, SerializationError
from ...nn.parameter import Parameter
from ...ops import api
from ...serialize.packed import pack, unpack
from ...trace import warn
from .metadata import (
    STATE_DICT_TYPE,
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorStorageMetadata,
)
from .planner import (
    BytesIOWriteData,
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from .state.boxes import fault, meetings
from .state.flat import Path, flatten_state_dict, paths_of, set_element
from .state.pieces import piece, pieces_of

_NO_SIZE = Size(())
SHARED_OUT_FROM = 1 << 20  # bytes; to balance less than that between ranks saves no time


# --- saving: pure parts ---------------------------------------------------------------------------


def write_items(name: str, value: object) -> list[WriteItem]:
    """What this rank would write for a value."""
    held = pieces_of(value)
    if held is None:
        _check_tuples(name, value)
        return [WriteItem(MetadataIndex(name), WriteItemType.BYTE_IO, BytesIOWriteData(0))]
    if isinstance(value, Tensor) and value.is_meta:
        raise ConfigError(
            f"save: {name!r} is on the meta device and has no numbers; fill it (to_empty, "
            "reset_parameters), or leave it out"
        )
    kind = WriteItemType.TENSOR if held.whole else WriteItemType.SHARD
    return [
        WriteItem(
            MetadataIndex(name, at, k),
            kind,
            None,
            TensorWriteData(ChunkStorageMetadata(Size(at), Size(size)), held.properties,
                            Size(held.size)),
        )
        for k, (at, size) in enumerate(held.boxes)
        if math.prod(size) or not math.prod(held.size)
    ]  # fmt: skip


def _check_tuples(name: str, value: object) -> None:
    """Refuse sharded tensors in what is saved as one value: it would be this rank's piece alone."""
    if isinstance(value, (tuple, list)):
        for inner in value:
            held = pieces_of(inner)
            if held is not None and not held.whole:
                raise ConfigError(
                    f"save: {name!r} is a {type(value).__name__} with a sharded tensor of shape "
                    f"{list(held.size)} in it; tuples are saved as one value by one rank. Put it "
                    "into a list or a dict"
                )
            _check_tuples(name, inner)


def create_default_local_save_plan(
    state_dict: dict[str, Any], is_coordinator: bool = False
) -> SavePlan:
    """What this rank would write of a flat state dict."""
    return SavePlan([item for name, v in state_dict.items() for item in write_items(name, v)])


def share_out(plans: list[SavePlan], to_lowest_rank: bool = False) -> list[SavePlan]:
    """Let one rank write what several hold: of a large tensor, the one that has least to write so
    far; of anything else, the lowest rank. Small tensors that the ranks let drift apart (running
    statistics under DDP, which goes on with rank 0's) are thereby those of one rank."""
    holders: dict[MetadataIndex, list[int]] = {}
    sizes: dict[MetadataIndex, int] = {}
    for rank, plan in enumerate(plans):
        for item in plan.items:
            holders.setdefault(item.index, []).append(rank)
            sizes[item.index] = item.tensor_storage_size() or 0
    load = [0] * len(plans)
    writer: dict[MetadataIndex, int] = {}
    for index in sorted(holders, key=lambda i: (len(holders[i]) > 1, -sizes[i])):
        fixed = to_lowest_rank or sizes[index] < SHARED_OUT_FROM
        ranks = holders[index]
        chosen = min(ranks) if fixed else min(ranks, key=lambda r: (load[r], r))
        writer[index] = chosen
        load[chosen] += sizes[index]
    return [
        dataclasses.replace(plan, items=[i for i in plan.items if writer[i.index] == rank])
        for rank, plan in enumerate(plans)
    ]


def describe(plans: Iterable[SavePlan]) -> dict[str, Any]:
    """What the values of all plans are, by name. ``ConfigError`` where the pieces of a tensor do
    not make it up."""
    about: dict[str, Any] = {}
    for item in (item for plan in plans for item in plan.items):
        name, data = item.index.fqn, item.tensor_data
        if data is None:
            about[name] = BytesStorageMetadata()
        else:
            found = about.setdefault(name, TensorStorageMetadata(data.properties, data.size, []))
            found.chunks.append(data.chunk)
    for name, found in about.items():
        if isinstance(found, TensorStorageMetadata):
            wrong = fault(found.size, [(tuple(c.offsets), tuple(c.sizes)) for c in found.chunks])
            if wrong:
                raise ConfigError(f"save: {name!r} is not whole: {wrong}")
    return about


def check_agreement(plans: list[SavePlan]) -> None:
    """Refuse what ranks hold under one name and differently, before one of them is chosen."""
    first: dict[str, tuple[Any, int]] = {}
    for rank, plan in enumerate(plans):
        for item in plan.items:
            data = item.tensor_data
            now = ("no tensor",) if data is None else (tuple(data.size), data.properties.dtype)
            before, other = first.setdefault(item.index.fqn, (now, rank))
            if before != now:
                raise ConfigError(
                    f"save: {item.index.fqn!r} is {_told(before)} on rank {other} and {_told(now)} "
                    f"on rank {rank}; all ranks must agree, or use names of their own"
                )


def _told(kind: tuple) -> str:
    return kind[0] if len(kind) == 1 else f"a tensor of shape {list(kind[0])} and {kind[1]}"


def create_default_global_save_plan(all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
    """The plans as they are, and what they make up."""
    return all_plans, Metadata(describe(all_plans))


class DefaultSavePlanner(SavePlanner):
    """Saves nested state dicts under flat names; what several ranks hold is written once.

    ``flatten_sharded_tensors``, ``dedup_replicated_tensors`` and ``enable_plan_caching`` are taken
    for programs that name them: it is so in any case, or has no effect on what is written.
    """

    def __init__(
        self,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = True,
        dedup_replicated_tensors: bool | None = None,
        dedup_save_to_lowest_rank: bool = False,
        enable_plan_caching: bool = False,
    ) -> None:
        self.flatten_state_dict = flatten_state_dict
        self.flatten_sharded_tensors = flatten_sharded_tensors
        self.dedup_save_to_lowest_rank = dedup_save_to_lowest_rank
        self.mappings: dict[str, Path] = {}
        self.state_dict: STATE_DICT_TYPE = {}
        self.is_coordinator = False

    def set_up_planner(
        self,
        state_dict: STATE_DICT_TYPE,
        storage_meta: StorageMeta | None = None,
        is_coordinator: bool = False,
    ) -> None:
        if self.flatten_state_dict:
            state_dict, self.mappings = flatten_state_dict(state_dict, empty=True)
        self.state_dict, self.is_coordinator = state_dict, is_coordinator

    def create_local_plan(self) -> SavePlan:
        plan = create_default_local_save_plan(self.state_dict, self.is_coordinator)
        if self.flatten_state_dict:
            plan = dataclasses.replace(plan, planner_data=self.mappings)
        self.plan = plan
        return plan

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        check_agreement(all_plans)
        shared = share_out(all_plans, self.dedup_save_to_lowest_rank)
        plans, metadata = create_default_global_save_plan(shared)
        if not self.flatten_state_dict:
            return plans, metadata
        paths: dict[str, Path] = {}
        for plan in reversed(all_plans):  # the lowest rank's word counts
            paths |= plan.planner_data or {}
        return plans, dataclasses.replace(metadata, planner_data=paths)

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        self.plan = new_plan
        return new_plan

    def resolve_data(self, write_item: WriteItem) -> Tensor | io.BytesIO:
        return self.transform_object(write_item, self.lookup_object(write_item.index))

    def lookup_object(self, index: MetadataIndex) -> Any:
        """The value, or the piece of it, that ``index`` names. For subclasses to change."""
        value = self.state_dict[index.fqn]
        return value if pieces_of(value) is None else piece(value, index.fqn, index.offset)

    def transform_object(self, write_item: WriteItem, object: object) -> Any:
        """What is written for it. For subclasses to change."""
        if write_item.type is WriteItemType.BYTE_IO:
            return io.BytesIO(pack(object))
        return object


# --- loading: pure parts --------------------------------------------------------------------------


@dataclasses.dataclass
class LoadReport:
    """What a checkpoint and a state dict do not have in common."""

    missing: list[str] = dataclasses.field(default_factory=list)  # asked for, not in it
    unexpected: list[str] = dataclasses.field(default_factory=list)  # in it, not asked for
    mismatched: list[str] = dataclasses.field(default_factory=list)  # a sentence for each

    def __str__(self) -> str:
        parts = [
            f"{kind}: {len(names)} ({', '.join(names[:8])}{', ...' if len(names) > 8 else ''})"
            for kind, names in (("missing", self.missing), ("unexpected", self.unexpected),
                                ("mismatched", self.mismatched)) if names
        ]  # fmt: skip
        return "; ".join(parts) or "all there"


def compare(state_dict: dict[str, Any], metadata: Metadata) -> LoadReport:
    """What does not fit."""
    stored = metadata.state_dict_metadata
    report = LoadReport(unexpected=sorted(stored.keys() - state_dict.keys()))
    for name, value in state_dict.items():
        found, held = stored.get(name), pieces_of(value)
        if found is None:
            report.missing.append(name)
        elif isinstance(found, BytesStorageMetadata):
            continue  # takes the place of whatever is there, a tensor, too
        elif held is None:
            report.mismatched.append(
                f"{name} is a tensor of shape {list(found.size)} in the checkpoint and a "
                f"{type(value).__name__} here"
            )
        elif tuple(found.size) != held.size:
            report.mismatched.append(
                f"Size mismatch between saved {found.size} and current: {Size(held.size)} for "
                f"{name}"
            )
    return report


def read_items(
    name: str, stored: BytesStorageMetadata | TensorStorageMetadata, value: object
) -> list[ReadItem]:
    """The reads that fill what this rank holds of a value."""
    held = pieces_of(value)
    if isinstance(stored, BytesStorageMetadata) or held is None:
        index = MetadataIndex(name)
        return [ReadItem(LoadItemType.BYTE_IO, index, _NO_SIZE, index, _NO_SIZE, _NO_SIZE)]
    boxes = [(tuple(c.offsets), tuple(c.sizes)) for c in stored.chunks]
    return [
        ReadItem(
            LoadItemType.TENSOR,
            MetadataIndex(name, held.boxes[m.wanted][0], m.wanted), Size(m.in_wanted),
            MetadataIndex(name, boxes[m.stored][0], m.stored), Size(m.in_stored),
            Size(m.sizes),
        )
        for m in meetings(held.boxes, boxes)
    ]  # fmt: skip


def create_default_local_load_plan(
    state_dict: dict[str, Any], metadata: Metadata, strict: bool = True
) -> LoadPlan:
    """The reads that fill a flat state dict. ``SerializationError`` says all that does not fit;
    without ``strict``, what is missing stays as it is."""
    report = compare(state_dict, metadata)
    wrong = list(report.mismatched)
    if strict and report.missing:
        names = ", ".join(report.missing[:12]) + (", ..." if len(report.missing) > 12 else "")
        wrong.insert(
            0,
            f"Missing key in checkpoint state_dict: {names}. ({len(report.missing)} of "
            f"{len(state_dict)}; allow_partial_load=True leaves them as they are)",
        )
    if wrong:
        more = [f"{len(wrong) - 12} more"] if len(wrong) > 12 else []
        said = "; ".join(wrong[:12] + more)
        raise SerializationError(f"load: the checkpoint does not fit: {said}")
    stored = metadata.state_dict_metadata
    items = [
        item
        for name, value in state_dict.items() if name in stored
        for item in read_items(name, stored[name], value)
    ]  # fmt: skip
    return LoadPlan(items)


def create_default_global_load_plan(all_plans: list[LoadPlan]) -> list[LoadPlan]:
    """The plans as they are."""
    return all_plans


def _fill_empty(state_dict: STATE_DICT_TYPE, metadata: Metadata | None) -> None:
    """Make room where a dict is empty and the checkpoint has values under its name: the state of an
    optimizer that has not stepped yet. Whether they are to be sharded is not known here, so beside
    sharded tensors it is only told."""
    stored = {} if metadata is None else paths_of(metadata)
    flat, paths = flatten_state_dict(state_dict, empty=True)
    spots = [paths[name] for name, value in flat.items() if isinstance(value, dict)]
    held = (pieces_of(value) for value in flat.values())
    plain = all(pieces is None or pieces.whole for pieces in held)
    for spot in spots:
        names = [n for n, p in stored.items() if p[: len(spot)] == spot and len(p) > len(spot)]
        if names and not plain:
            warn(
                f"load: {'.'.join(map(str, spot))!r} is empty, and the checkpoint has {len(names)} "
                "values under it, which are not loaded; make one step first, or take "
                "get_state_dict(model, optimizer), which makes room",
            )
            continue
        assert metadata is not None
        for name in names:
            about, room = metadata.state_dict_metadata[name], None
            if isinstance(about, TensorStorageMetadata):
                room = api.empty(about.size, dtype=about.properties.dtype)
            set_element(state_dict, stored[name], room)


class DefaultLoadPlanner(LoadPlanner):
    """Loads in place. ``report`` says afterwards what was missing, unexpected or did not fit.

    ``allow_partial_load``: what the checkpoint lacks stays as it is. Tensors on the meta device get
    memory. Nothing is unpickled; classes are made as ``serialize.load`` allows it.
    """

    def __init__(
        self,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = True,
        allow_partial_load: bool = False,
    ) -> None:
        self.flatten_state_dict = flatten_state_dict
        self.flatten_sharded_tensors = flatten_sharded_tensors
        self.allow_partial_load = allow_partial_load
        self.original_state_dict: STATE_DICT_TYPE = {}
        self.mappings: dict[str, Path] = {}
        self.state_dict: STATE_DICT_TYPE = {}
        self.metadata: Metadata | None = None
        self.is_coordinator = False
        self.report = LoadReport()

    def set_up_planner(
        self,
        state_dict: STATE_DICT_TYPE,
        metadata: Metadata | None = None,
        is_coordinator: bool = False,
    ) -> None:
        self.original_state_dict = state_dict
        _fill_empty(state_dict, metadata)
        flat, paths = flatten_state_dict(state_dict)
        for name, value in flat.items():
            if type(value) in (Tensor, Parameter) and value.is_meta:
                flat[name] = api.empty(value.shape, dtype=value.dtype)
                set_element(state_dict, paths[name], flat[name])
        if self.flatten_state_dict:
            state_dict, self.mappings = flat, paths
        self.state_dict, self.metadata = state_dict, metadata
        self.is_coordinator = is_coordinator

    def create_local_plan(self) -> LoadPlan:
        assert self.metadata is not None
        self.report = compare(self.state_dict, self.metadata)
        return create_default_local_load_plan(
            self.state_dict, self.metadata, not self.allow_partial_load
        )

    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        return create_default_global_load_plan(global_plan)

    def finish_plan(self, new_plan: LoadPlan) -> LoadPlan:
        return new_plan

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        name = read_item.dest_index.fqn
        loaded = unpack(value.getvalue(), f"load: {name}")
        self.state_dict[name] = loaded
        if self.flatten_state_dict:
            set_element(self.original_state_dict, self.mappings[name], loaded)

    def resolve_tensor(self, read_item: ReadItem) -> Tensor:
        return self.transform_tensor(read_item, self.lookup_tensor(read_item.dest_index))

    def commit_tensor(self, read_item: ReadItem, tensor: Tensor) -> None:
        pass

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        """The piece of the state dict that ``index`` names. For subclasses to change."""
        return piece(self.state_dict[index.fqn], index.fqn, index.offset)

    def transform_tensor(self, read_item: ReadItem, tensor: Tensor) -> Tensor:
        """The part of it that is read. For subclasses to change."""
        box = zip(read_item.dest_offsets, read_item.lengths, tensor.shape)
        if all(n == d for _, n, d in box):
            return tensor
        for dim, (at, n) in enumerate(zip(read_item.dest_offsets, read_item.lengths)):
            tensor = api.narrow(tensor, dim, at, n)
        return tensor


class EmptyStateDictLoadPlanner(DefaultLoadPlanner):
    """Fills an empty dict with all that a checkpoint has, or with what lies under ``keys`` (flat
    names, or beginnings of them up to a dot)."""

    def __init__(self, keys: Iterable[str] | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.keys = None if keys is None else set(keys)

    def set_up_planner(
        self,
        state_dict: STATE_DICT_TYPE,
        metadata: Metadata | None = None,
        is_coordinator: bool = False,
    ) -> None:
        assert metadata is not None
        if state_dict:
            raise ConfigError("load: this planner fills an empty state dict; give it {}")
        paths = paths_of(metadata)
        for name, found in metadata.state_dict_metadata.items():
            if self._wanted(name):
                value = None
                if isinstance(found, TensorStorageMetadata):
                    value = api.empty(found.size, dtype=found.properties.dtype)
                self.state_dict[name] = value
                self.mappings[name] = tuple(paths.get(name, (name,)))
                set_element(state_dict, self.mappings[name], value)
        self.original_state_dict, self.metadata = state_dict, metadata
        self.is_coordinator = is_coordinator

    def _wanted(self, name: str) -> bool:
        if self.keys is None:
            return True
        parts = name.split(".")
        return any(".".join(parts[:k]) in self.keys for k in range(1, len(parts) + 1))


_EmptyStateDictLoadPlanner = EmptyStateDictLoadPlanner  # the name that programs know
