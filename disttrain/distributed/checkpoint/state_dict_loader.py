"""``load``: every rank reads what it needs of a checkpoint, whoever wrote it.

Nothing is handed out before its checksum fits, and what fails on one rank fails on all. Knows
planners and storage by their abstract classes alone.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

from ...comm.group.group import ProcessGroup
from ...core import no_grad
from ...errors import ConfigError
from ...trace import warn
from ..groups.state import group_or_default, is_initialized
from .agreement import Together
from .background import wait_for_pending
from .default_planner import DefaultLoadPlanner, EmptyStateDictLoadPlanner
from .filesystem import FileSystemReader
from .metadata import STATE_DICT_TYPE
from .planner import LoadPlan, LoadPlanner
from .stateful import is_stateful
from .storage import StorageReader


def load(
    state_dict: STATE_DICT_TYPE,
    *,
    checkpoint_id: str | os.PathLike | None = None,
    storage_reader: StorageReader | None = None,
    planner: LoadPlanner | None = None,
    process_group: ProcessGroup | None = None,
    no_dist: bool = False,
) -> None:
    """Load a checkpoint into ``state_dict``, in place. Every rank of the group calls it.

    Tensors are filled where they are, each rank its own pieces, however the saved ones were split;
    other values are replaced; objects with ``load_state_dict()`` are given their state. Types are
    converted where they differ. ``CheckpointException`` on all ranks, with one text: no checkpoint,
    one that is damaged, or one that does not fit (what is missing and what differs is listed;
    ``planner=DefaultLoadPlanner(allow_partial_load=True)`` leaves the missing as they are, and has
    a ``report`` afterwards).
    """
    wait_for_pending()
    reader = _reader(storage_reader, checkpoint_id)
    group = None
    if not no_dist and (process_group is not None or is_initialized()):
        group = group_or_default(process_group)
    together, asked = Together(group), dict(state_dict)

    def ask() -> STATE_DICT_TYPE:
        stateful = {k: v for k, v in state_dict.items() if is_stateful(v)}
        asked.update((k, v.state_dict()) for k, v in stateful.items())
        return asked

    def give() -> None:
        for key, value in state_dict.items():
            if is_stateful(value):
                value.load_state_dict(asked[key])

    read(ask, reader, together, planner)
    together.each("load: give", give)
    for key, value in asked.items():
        if not is_stateful(state_dict.get(key)):
            state_dict[key] = value


def load_state_dict(
    state_dict: dict[str, Any],
    storage_reader: StorageReader,
    process_group: ProcessGroup | None = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: LoadPlanner | None = None,
) -> None:
    """The older form of ``load``; PyTorch has it still, and warns."""
    warn("'load_state_dict' is deprecated; use 'load'", FutureWarning)
    wait_for_pending()
    storage_reader.reset()
    group = None
    if not no_dist and (process_group is not None or is_initialized()):
        group = group_or_default(process_group)
    read(lambda: state_dict, storage_reader, Together(group, coordinator_rank), planner)


def load_from_keys(
    keys: set[str] | str | None = None,
    *,
    checkpoint_id: str | os.PathLike | None = None,
    storage_reader: StorageReader | None = None,
    process_group: ProcessGroup | None = None,
) -> dict[str, Any]:
    """What a checkpoint has under ``keys`` (flat names, or beginnings of them up to a dot; None:
    all), as a nested dict of whole tensors."""
    state: dict[str, Any] = {}
    load(
        state,
        checkpoint_id=checkpoint_id,
        storage_reader=storage_reader,
        planner=EmptyStateDictLoadPlanner({keys} if isinstance(keys, str) else keys),
        process_group=process_group,
    )
    return state


def _load_state_dict(
    state_dict: dict[str, Any],
    storage_reader: StorageReader,
    process_group: ProcessGroup | None = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: LoadPlanner | None = None,
    use_collectives: bool = True,
) -> None:
    """``load_state_dict``, as programs call it that know no newer name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        load_state_dict(
            state_dict, storage_reader, process_group, coordinator_rank, no_dist, planner
        )


_load_state_dict_from_keys = load_from_keys  # the name that programs know


def _reader(given: StorageReader | None, checkpoint_id: Any) -> StorageReader:
    if given is None:
        if checkpoint_id is None:
            raise ConfigError("load: neither checkpoint_id nor storage_reader given; name a folder")
        given = FileSystemReader(checkpoint_id)
    given.reset(checkpoint_id)
    return given


def read(
    values: Callable[[], STATE_DICT_TYPE],
    reader: StorageReader,
    together: Together,
    planner: LoadPlanner | None,
) -> None:
    """The load itself, into the flat or nested dict that ``values()`` gives; an error of it is one
    of all."""
    planner = DefaultLoadPlanner() if planner is None else planner

    def local() -> LoadPlan:
        metadata = reader.read_metadata()
        planner.set_up_planner(values(), metadata, together.is_coordinator)
        reader.set_up_storage_reader(metadata, together.is_coordinator)
        return reader.prepare_local_plan(planner.create_local_plan())

    def central(plans: list[LoadPlan]) -> list[LoadPlan]:
        return reader.prepare_global_plan(planner.create_global_plan(plans))

    plan = together.planned("load: plan", local, central)

    def body() -> None:
        with no_grad():
            reader.read_data(planner.finish_plan(plan), planner).wait()

    together.each("load: read", body)
