"""Names and numbers of workers. Pure data."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...errors import WorkerError

MAX_NAME = 128
MAX_ID = 65535
_NAME = re.compile(r"[A-Za-z0-9_:.\-]+")


class WorkerInfo:
    """A worker: its ``name``, which is unique, and its ``id``, a number from 0.

    Names have letters, digits, underscores, colons, dots and dashes, and fewer than 128 of them
    (else ``WorkerError``).
    """

    __slots__ = ("id", "name")

    def __init__(self, name: str, id: int) -> None:
        self.name, self.id = name, id
        if not isinstance(name, str) or not isinstance(id, int):
            raise WorkerError(f"WorkerInfo(name={name!r}, id={id!r}): a str and an int are needed")
        if not name:
            raise WorkerError("Worker name must be non-empty: '' was given")
        if len(name) >= MAX_NAME:
            raise WorkerError(
                f"Worker name must be shorter than {MAX_NAME}: one of {len(name)} characters was "
                f"given, {name[:20]!r}..."
            )
        if not _NAME.fullmatch(name):
            raise WorkerError(
                f"Worker name must match ^[A-Za-z0-9-_:.]*$, but got {name!r}: it has other "
                "characters; use letters, digits, underscores, colons, dots and dashes"
            )
        if not 0 <= id <= MAX_ID:
            raise WorkerError(f"worker {name!r}: id {id} given; 0 to {MAX_ID} is needed")

    def __repr__(self) -> str:
        return f"WorkerInfo(id={self.id}, name={self.name})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WorkerInfo):
            return NotImplemented
        return self.id == other.id and self.name == other.name

    def __hash__(self) -> int:
        return hash((self.id, self.name))

    def __reduce__(self) -> tuple:
        return WorkerInfo, (self.name, self.id)


class Workers:
    """The workers that one of them (``me``) knows. Joining and leaving are atomic to readers."""

    def __init__(self, me: WorkerInfo) -> None:
        self.me = me
        self.by_id: dict[int, WorkerInfo] = {me.id: me}
        self._by_name: dict[str, WorkerInfo] = {me.name: me}

    def add(self, worker: WorkerInfo) -> None:
        check_unique([*self.by_id.values(), worker])
        self.by_id[worker.id] = worker
        self._by_name[worker.name] = worker

    def remove(self, worker: WorkerInfo) -> None:
        self.by_id.pop(worker.id, None)
        self._by_name.pop(worker.name, None)

    def names(self) -> list[str]:
        """All names, the smallest first."""
        return sorted(self._by_name)

    def find(self, to: object) -> WorkerInfo:
        """The worker that is meant by a name, a number or a ``WorkerInfo``. ``WorkerError`` where
        there is none, ``ValueError`` for anything else."""
        if to.__class__ is WorkerInfo:
            found = self.by_id.get(to.id)
            return found if found is not None else self._unknown("id", to.id)
        if isinstance(to, str):
            return self._by_name.get(to) or self._unknown("name", to)
        if isinstance(to, int):
            found = self.by_id.get(int(to))
            return found if found is not None else self._unknown("id", to)
        raise ValueError(
            f"Cannot get WorkerInfo from name {to}: a name, a number or a WorkerInfo is needed"
        )

    def _unknown(self, what: str, given: int | str) -> WorkerInfo:
        known = ", ".join(f"{w.name} ({w.id})" for w in list(self.by_id.values())[:8])
        raise WorkerError(
            f"name:{self.me.name},rank:{self.me.id} could not find destination {what} {given}; "
            f"the workers are {known}" + (", ..." if len(self.by_id) > 8 else "")
        )


def check_unique(workers: Iterable[WorkerInfo]) -> None:
    """``WorkerError`` where two different workers share a name or a number."""
    by_name: dict[str, WorkerInfo] = {}
    by_id: dict[int, WorkerInfo] = {}
    for w in workers:
        other = by_name.setdefault(w.name, w)
        if other.id != w.id:
            raise WorkerError(
                f"RPC worker name {w.name} is not unique. Workers {other.id} and {w.id} cannot "
                "share the same name; give every worker a name of its own"
            )
        other = by_id.setdefault(w.id, w)
        if other.name != w.name:
            raise WorkerError(
                f"RPC worker id {w.id} is not unique. Workers {other.name} and {w.name} cannot "
                "share the same rank; give every worker a rank of its own"
            )
