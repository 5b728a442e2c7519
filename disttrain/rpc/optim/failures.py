"""What is raised when some owners of parameters failed and others did not."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import DisttrainError


class OwnersFailed(DisttrainError, ExceptionGroup):
    """Owners failed in one step; ``exceptions`` has the error of each, whose text names the worker.

    ``failed``: name of an owner -> its error. ``done``: names of the owners that have done it.
    Where all errors are of one kind (``ValueError``, ``PeerFailed`` ...) the raised group is of
    that kind too, so that handlers written for one process take it.
    """

    failed: dict[str, Exception]
    done: list[str]

    def __init__(self, message: str, exceptions: Sequence[Exception]) -> None:
        pass  # the rest was done when it was made; the other kind's own attributes are copied

    def derive(self, excs: Sequence[Any]) -> Any:
        """A group of some of the errors, for ``except*``."""
        return ExceptionGroup(self.message, excs)


def owners_failed(what: str, failed: Mapping[str, Exception], done: Sequence[str]) -> OwnersFailed:
    """The error of ``what`` at the owners in ``failed``, while those in ``done`` have done it."""
    errors = list(failed.values())
    total = len(failed) + len(done)
    rest = f"; done at {', '.join(done)}" if done else ""
    told = "; ".join(f"{name}: {_first_lines(error)}" for name, error in failed.items())
    advice = (
        " The parameters of the others are changed already: go on from a checkpoint, or from "
        "equal parameters"
        if done and what.endswith(".step")
        else ""
    )
    text = f"{what}: failed at {len(failed)} of {total} owners{rest}. {told}{advice}"
    error = _kind(errors)(text, errors)
    for name, value in vars(errors[0]).items() if len(errors) == 1 else ():
        setattr(error, name, value)
    error.failed, error.done = dict(failed), list(done)
    return error


def _first_lines(error: Exception) -> str:
    """The kind of an error and what it says, without the traceback that may follow."""
    text = str(error).strip().partition("Traceback (most recent call last)")[0].strip()
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _kind(errors: Sequence[Exception]) -> type[OwnersFailed]:
    """The class of groups that is also of the nearest kind that all errors are of."""
    for base in type(errors[0]).__mro__:
        ours = issubclass(base, DisttrainError)
        if not (ours or base.__module__ == builtins.__name__):
            continue
        if not all(isinstance(error, base) for error in errors):
            continue
        if issubclass(OwnersFailed, base):
            return OwnersFailed
        try:
            return type("OwnersFailed", (OwnersFailed, base), {"__module__": __name__})
        except TypeError:  # kept in memory in a way of its own, as OSError is
            continue
    return OwnersFailed
