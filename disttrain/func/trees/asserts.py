"""Checks that a program makes itself: raised at once, or told beside its result by ``checkify``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...context import thread

_SLOT = "func.trees.checks"  # the rank's slot: the error of the function that runs


class CheckFailed(ValueError):
    """A check that failed."""


class Error:
    """What failed first, if anything did."""

    def __init__(self, message: str | None = None) -> None:
        self.message = message

    def get(self) -> str | None:
        """The message; None where nothing failed."""
        return self.message

    def throw(self) -> None:
        """Raise it."""
        if self.message is not None:
            raise CheckFailed(self.message)


def running() -> bool:
    """Whether ``checkify`` runs the function."""
    return thread.rank.slots.get(_SLOT) is not None


def check(pred: Any, msg: str, *fmt_args: Any, **fmt_kwargs: Any) -> None:
    """Fail with ``msg`` unless ``pred`` holds."""
    if bool(pred):
        return
    found = thread.rank.slots.get(_SLOT)
    message = msg.format(*fmt_args, **fmt_kwargs)
    if found is None:
        raise CheckFailed(message)
    found.message = found.message or message


def check_error(error: Error) -> None:
    """Raise what ``error`` says."""
    error.throw()


def checkify(f: Callable, errors: Any = None) -> Callable[..., tuple[Error, Any]]:
    """``f`` with the error of its checks before its result."""

    @functools.wraps(f)
    def checked(*args: Any, **kwargs: Any) -> tuple[Error, Any]:
        slots, error = thread.rank.slots, Error()
        before, slots[_SLOT] = slots.get(_SLOT), error
        try:
            return error, f(*args, **kwargs)
        finally:
            slots[_SLOT] = before

    return checked


__all__ = ["CheckFailed", "Error", "check", "check_error", "checkify", "running"]
