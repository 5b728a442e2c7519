"""``jax.experimental.checkify``: the checks that a program makes itself.

``check`` outside of transforms raises at once; in a function given to ``checkify`` it is what the
error that comes beside the result says.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...context import thread
from . import errors
from .array import Array
from .tracing import is_traced

_SLOT = "compat.jax.checkify"


class ErrorCategory:
    """What kind of check it is."""


class JaxRuntimeError(ValueError):
    """A check that failed."""


user_checks = frozenset({JaxRuntimeError})
nan_checks = index_checks = div_checks = float_checks = automatic_checks = frozenset[Any]()
all_checks = user_checks


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
            raise JaxRuntimeError(self.message)


def check(pred: Any, msg: str, *fmt_args: Any, debug: bool = False, **fmt_kwargs: Any) -> None:
    """Fail with ``msg`` unless ``pred`` holds."""
    if isinstance(pred, Array) and is_traced(pred._value):
        if debug:
            return
        raise errors.ConcretizationTypeError(
            pred, "checkify.check of a value that is traced: check outside of jit, vmap and grad"
        )
    if bool(pred):
        return
    found = thread.rank.slots.get(_SLOT)
    message = msg.format(*fmt_args, **fmt_kwargs)
    if found is None:
        raise JaxRuntimeError(message)
    found.message = found.message or message


def debug_check(pred: Any, msg: str, *fmt_args: Any, **fmt_kwargs: Any) -> None:
    """``check`` where ``checkify`` runs the function, nothing elsewhere."""
    if thread.rank.slots.get(_SLOT) is not None:
        check(pred, msg, *fmt_args, debug=True, **fmt_kwargs)


def check_error(error: Error) -> None:
    """Raise what ``error`` says."""
    error.throw()


def checkify(f: Callable, errors: frozenset = user_checks) -> Callable[..., tuple[Error, Any]]:
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
