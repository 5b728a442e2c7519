"""Steps that all ranks take together: what fails on one, fails on all, with one text.

Every step ends in one exchange of outcomes, so no rank goes on alone, and none waits for one that
has given up. Knows groups; knows nothing of checkpoints.
"""

from __future__ import annotations

import builtins
import os
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

from ... import errors
from ...comm.group.group import ProcessGroup
from ...context import unrepeatable
from ..collectives import objects
from .api import CheckpointException
from .files.wire import dump, parse

T = TypeVar("T")
S = TypeVar("S")


class Together:
    """The ranks of ``group``, or this one alone (None, or where it has no peers)."""

    def __init__(self, group: ProcessGroup | None, coordinator_rank: int = 0) -> None:
        if group is not None and not group.transport.hears:
            group, coordinator_rank = None, 0
        self.group = group
        self.rank = 0 if group is None else group.rank
        self.size = 1 if group is None else group.size
        self.coordinator = coordinator_rank
        self.is_coordinator = self.rank == coordinator_rank

    def each(self, step: str, work: Callable[[], Any]) -> list[Any]:
        """Every rank does ``work``; the coordinator gets the results of all, the others none."""
        if self.group is None:
            mine, error = _attempt(work)
            if error is not None:
                raise _failure(step, {0: error}) from error
            return [mine]
        told, error = _attempt(lambda: dump(work()))
        sent = _told(error) if error is not None else ["done", told]
        with unrepeatable():
            got = objects.all_gather(self.group, sent)
        failed = {r: _heard(g) for r, g in enumerate(got) if g[0] == "failed"}
        if failed:
            if error is not None:
                failed[self.rank] = error
            raise _failure(step, failed) from error
        return [parse(g[1]) for g in got] if self.is_coordinator else []

    def one(self, step: str, work: Callable[[], Any]) -> Any:
        """The coordinator does ``work``; its result, on all."""
        found: list[Any] = []

        def told() -> bytes:
            found.append(work())
            return dump(found[0]) if self.group is not None else b""

        got = self._exchanged(step, told)
        return found[0] if self.is_coordinator else parse(got)

    def planned(
        self, step: str, local: Callable[[], T], central: Callable[[list[T]], list[S]]
    ) -> S:
        """Every rank does ``local``; the coordinator makes of all results one for each rank."""
        parts = self.each(step, local)
        plans: list[S] = []

        def told() -> list[bytes]:
            plans.extend(central(parts))
            return [dump(plan) for plan in plans] if self.group is not None else []

        got = self._exchanged(step, told)
        return plans[self.rank] if self.is_coordinator else parse(got[self.rank])

    def _exchanged(self, step: str, work: Callable[[], Any]) -> Any:
        """What the coordinator's ``work`` gives, on all, or its error."""
        told, error = _attempt(work) if self.is_coordinator else (None, None)
        if self.group is None:
            if error is not None:
                raise _failure(step, {0: error}) from error
            return told
        mine = _told(error) if error is not None else ["done", told]
        with unrepeatable():
            got = objects.broadcast(self.group, mine, self.coordinator)
        if got[0] == "failed":
            raise _failure(step, {self.coordinator: error or _heard(got)}) from error
        return got[1]


def _attempt(work: Callable[[], Any]) -> tuple[Any, Exception | None]:
    try:
        return work(), None
    except errors.CommError:  # the group itself is broken: there is nothing to exchange any more
        raise
    except Exception as error:
        return None, error


def _failure(step: str, failed: dict[int, Exception]) -> CheckpointException:
    return CheckpointException(
        step, {r: (e, traceback.extract_tb(e.__traceback__)) for r, e in failed.items()}
    )


def _told(error: Exception) -> list[Any]:
    number = getattr(error, "errno", None)
    filename = os.fsdecode(getattr(error, "filename", None) or "")
    text = str(error)
    if number is not None:
        text = getattr(error, "strerror", None) or text
    elif type(error) is KeyError and len(error.args) == 1:
        text = str(error.args[0])  # str(error) would be quoted
    kind = type(error)
    return ["failed", kind.__module__, kind.__qualname__, text, number, filename]


def _heard(said: list[Any]) -> Exception:
    """An error of another rank, of the same class where that is a known one, and of one with its
    name where not: all ranks show the same text."""
    _, module, name, text, number, filename = said
    kind = getattr(errors, name, None) or getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception) and kind.__module__ == module:
        try:
            if number is not None and issubclass(kind, OSError):
                return kind(number, text, filename) if filename else kind(number, text)
            return kind(text)
        except TypeError:  # one that is made in a way of its own
            pass
    return _unknown(module, name, text)


def _unknown(module: str, name: str, text: str) -> Exception:
    """An error of a class that only its rank has."""

    def reduce(self: Exception) -> tuple:
        return _unknown, (module, name, text)

    named = {"__module__": module, "__qualname__": name, "__reduce__": reduce}
    return type(name.rpartition(".")[2], (RuntimeError,), named)(text)
