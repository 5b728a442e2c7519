"""``save`` and ``async_save``: who plans, who writes, and when the checkpoint becomes visible.

1. Every rank plans what it would write; the coordinator shares out what several hold.
2. Every rank writes, and tells that its bytes are on the disk.
3. The coordinator, once all have told, commits the manifest, and tells the others.

Whatever fails on one rank in 1 to 3 fails on all, and what was written is removed. Knows planners
and storage by their abstract classes alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ...comm.group.group import ProcessGroup
from ...errors import CommError, ConfigError, PeerFailed
from ...trace import warn
from ..groups.state import group_or_default, is_initialized
from .agreement import Together
from .api import CheckpointException
from .background import background, wait_for_pending
from .default_planner import DefaultSavePlanner
from .filesystem import FileSystemWriter, aside
from .metadata import STATE_DICT_TYPE, Metadata
from .planner import SavePlan, SavePlanner
from .staging import AsyncStager, KeptStager
from .stateful import is_stateful
from .storage import StorageWriter


class AsyncCheckpointerType(Enum):
    """Where an asynchronous save runs. A process of its own would need a second copy of all
    tensors; here both names mean a thread, which lets go of the interpreter while it writes."""

    THREAD = "thread"
    PROCESS = "process"


@dataclass
class AsyncSaveResponse:
    """What ``async_save`` returns with a stager whose copies come as futures: ``result()`` of the
    one returns when the program may go on to change the values, of the other when the checkpoint is
    on the disk."""

    staging_completion: Future
    upload_completion: Future


def save(
    state_dict: STATE_DICT_TYPE,
    *,
    checkpoint_id: str | os.PathLike | None = None,
    storage_writer: StorageWriter | None = None,
    planner: SavePlanner | None = None,
    process_group: ProcessGroup | None = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> Metadata:
    """Save ``state_dict`` as a checkpoint that any number of ranks can load.

    Every rank of the group calls it. Values with ``state_dict()`` are asked for it; sharded tensors
    are written by the ranks that hold them, what all hold by one of them. When it returns, the
    checkpoint is on the disk; when it raises ``CheckpointException`` (on all ranks, with the same
    text), or a rank dies, the checkpoint that was there before is untouched.
    """
    wait_for_pending()
    group = _group(process_group, no_dist, "save")
    writer = _writer(storage_writer, checkpoint_id)
    return write(lambda: _asked(state_dict), writer, Together(group), planner)


def save_state_dict(
    state_dict: STATE_DICT_TYPE,
    storage_writer: StorageWriter,
    process_group: ProcessGroup | None = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: SavePlanner | None = None,
) -> Metadata:
    """The older form of ``save``; PyTorch has it still, and warns."""
    warn("'save_state_dict' is deprecated; use 'save'", FutureWarning)
    wait_for_pending()
    storage_writer.reset()
    together = Together(_group(process_group, no_dist, "save"), coordinator_rank)
    return write(lambda: state_dict, storage_writer, together, planner)


def async_save(
    state_dict: STATE_DICT_TYPE,
    *,
    checkpoint_id: str | os.PathLike | None = None,
    storage_writer: StorageWriter | None = None,
    planner: SavePlanner | None = None,
    process_group: ProcessGroup | None = None,
    async_checkpointer_type: AsyncCheckpointerType = AsyncCheckpointerType.THREAD,
    async_stager: AsyncStager | None = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> Future | AsyncSaveResponse:
    """As ``save``, but it returns as soon as the values are copied: the program may go on to change
    them. The future's ``result()`` is what ``save`` would return, or raises what it would raise.

    One save runs at a time: the next one, of either kind, first waits for it, so that there is
    never more than one copy. The copies' memory is kept for the next save. The copy is made by
    ``async_stager``, or by the writer where it is an ``AsyncStager``; where that gives a future of
    it, an ``AsyncSaveResponse`` is returned.
    """
    wait_for_pending()
    group = _group(process_group, no_dist, "save")
    writer = _writer(storage_writer, checkpoint_id)
    if async_stager is None and isinstance(writer, AsyncStager):
        async_stager = writer
    staged, error = _staged(state_dict, async_stager or KeptStager.of_rank())

    def values() -> STATE_DICT_TYPE:
        if error is not None:
            raise error
        return staged.result() if isinstance(staged, Future) else staged

    done = background(group, lambda beside: write(values, writer, Together(beside), planner))
    if isinstance(staged, Future):
        copied: Future = Future()
        staged.add_done_callback(lambda staged: _pass_on(staged, copied))
        return AsyncSaveResponse(copied, done)
    return done


def _staged(state_dict: STATE_DICT_TYPE, stager: AsyncStager) -> tuple[Any, Exception | None]:
    """The copy, or a future of it; or the error, which the other ranks, who go on to save, must be
    told."""
    try:
        return stager.stage(_asked(state_dict)), None
    except Exception as error:
        return None, error


def _pass_on(staged: Future, copied: Future) -> None:
    """Tell ``copied`` how ``staged`` went."""
    error = staged.exception()
    if error is None:
        copied.set_result(None)
    else:
        copied.set_exception(error)


def _asked(state_dict: STATE_DICT_TYPE) -> dict[str, Any]:
    """The values, and the state of those that have one."""
    return {k: v.state_dict() if is_stateful(v) else v for k, v in state_dict.items()}


def _group(given: ProcessGroup | None, no_dist: bool, what: str) -> ProcessGroup | None:
    """The ranks that take part; None: this one alone."""
    if no_dist or (given is None and not is_initialized()):
        return None
    return group_or_default(given)


def _writer(given: StorageWriter | None, checkpoint_id: Any) -> StorageWriter:
    if given is None:
        if checkpoint_id is None:
            raise ConfigError("save: neither checkpoint_id nor storage_writer given; name a folder")
        given = FileSystemWriter(checkpoint_id)
    given.reset(checkpoint_id)
    return given


def write(
    values: Callable[[], STATE_DICT_TYPE],
    writer: StorageWriter,
    together: Together,
    planner: SavePlanner | None = None,
) -> Metadata:
    """The save itself. ``values()`` gives a flat or nested dict; an error of it is one of all."""
    job = _Save(values, writer, together, planner or DefaultSavePlanner())
    with aside(writer, together.group is not None):
        try:
            return job.run()
        except CheckpointException:
            writer.abandon()
            raise
        except CommError as error:
            job.give_up(error)
            raise
        finally:
            if isinstance(writer, FileSystemWriter):
                writer.let_go()


class _Save:
    def __init__(
        self, values: Any, writer: StorageWriter, together: Together, planner: SavePlanner
    ) -> None:
        self.values, self.writer = values, writer
        self.together, self.planner = together, planner
        self.metadata: Metadata | None = None

    def run(self) -> Metadata:
        together = self.together
        plan: SavePlan = together.planned("plan", self._local, self._central)

        def body() -> Any:
            return self.writer.write_data(self.planner.finish_plan(plan), self.planner).wait()

        results = together.each("write", body)
        return together.one("commit", lambda: self._finish(results))

    def _local(self) -> SavePlan:
        lead = self.together.is_coordinator
        self.planner.set_up_planner(
            state_dict=self.values(),
            storage_meta=self.writer.storage_meta(),
            is_coordinator=lead,
        )
        self.writer.set_up_storage_writer(lead)
        return self.writer.prepare_local_plan(self.planner.create_local_plan())

    def _central(self, plans: list[SavePlan]) -> list[SavePlan]:
        shared, self.metadata = self.planner.create_global_plan(plans)
        return self.writer.prepare_global_plan(shared)

    def _finish(self, results: list[Any]) -> Metadata:
        assert self.metadata is not None
        self.writer.finish(metadata=self.metadata, results=results)
        return self.metadata

    def give_up(self, error: CommError) -> None:
        """The group is broken. Only who knows that nobody will commit may remove anything: the
        coordinator itself, and the others when it is the one that died."""
        if not isinstance(self.writer, FileSystemWriter):
            return
        group = self.together.group
        lead = None if group is None else group.ranks[self.together.coordinator]
        if self.together.is_coordinator or (isinstance(error, PeerFailed) and error.rank == lead):
            self.writer.abandon(everything=True)
