"""Exceptions of communication as data, and back: only classes of ``disttrain.errors`` and of
Python's own come back, found by their names in these two modules."""

from __future__ import annotations

import builtins
from typing import Any

from ... import errors

_PLAIN = (str, int, float, bool, type(None))


def as_data(error: BaseException) -> dict[str, Any]:
    """What is kept of it."""
    own = {k: v for k, v in vars(error).items() if isinstance(v, _PLAIN)}
    kinds = [c.__name__ for c in type(error).__mro__ if c.__module__ in ("builtins", _HERE)]
    return {"kinds": kinds, "text": str(error), "own": own}


_HERE = errors.__name__


def _made(kind: type[BaseException], text: str) -> BaseException:
    try:
        error = kind.__new__(kind, text)  # without its own arguments
    except TypeError:
        error = kind(text)
    error.args = (text,)
    return error


def from_data(told: dict[str, Any]) -> BaseException:
    """An error of the nearest class that is known here."""
    for name in told["kinds"]:
        kind = vars(errors).get(name) or vars(builtins).get(name)
        if isinstance(kind, type) and issubclass(kind, BaseException):
            error = _made(kind, told["text"])
            if hasattr(error, "__dict__"):
                error.__dict__.update(told["own"])
            return error
    return RuntimeError(told["text"])
