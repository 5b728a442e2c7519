"""Errors that are kept for later, such as of a value that could not be made, and raised any number
of times. They keep no frames: those would keep what a program has in them, such as RRefs, and so
what other workers have for those RRefs, in cycles that no one worker's collector finds. What is
kept instead is the text of the traceback.
"""

from __future__ import annotations

import builtins
import copy
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

E = TypeVar("E", bound=BaseException)

TEXT = "_rpc_text"  # the attribute of an error that came from another worker, which tells it all
_TRACE = "_rpc_trace"  # the attribute with the text of frames; it is one of the error's notes, too
_MOST = 1 << 16  # characters of it


def keep(error: E) -> E:
    """A copy of ``error`` to be kept: without frames, and with a note of its traceback."""
    before = trace_of(error)
    if before or TEXT in error.__dict__:
        text = "".join(traceback.format_tb(error.__traceback__)) + before
    else:
        text = _formatted(error)
    if len(text) > _MOST:
        text = f"{text[: _MOST // 2]}\n...\n{text[-_MOST // 2 :]}"
    kept = again(error)
    notes = [note for note in kept.__dict__.get("__notes__", ()) if note != before]
    kept.__dict__["__notes__"] = [*notes, text]
    kept.__dict__[_TRACE] = text
    return kept


def again(error: E) -> E:
    """A copy of ``error`` to be raised, which will have the frames that it goes through."""
    makers: tuple[Callable[[E], E], ...] = (_bare, copy.copy)
    for make in makers:
        try:
            made = make(error)
            same = type(made) is type(error) and str(made) == str(error)
        except Exception:
            continue
        if same and made is not error:
            made.__dict__.update(error.__dict__)
            return made
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def trace_of(error: BaseException) -> str:
    """The text of the traceback that ``error`` had when it was kept, if it was."""
    return error.__dict__.get(_TRACE, "")


def attributes(error: BaseException) -> dict:
    """What a program may have set on ``error``."""
    state = dict(error.__dict__)
    trace = state.pop(_TRACE, None)
    if trace is not None:
        state["__notes__"] = [note for note in state.get("__notes__", ()) if note != trace]
        if not state["__notes__"]:
            del state["__notes__"]
    return state


def _formatted(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except Exception:  # it cannot be shown
        return "".join(traceback.format_tb(error.__traceback__))


def _bare(error: Any) -> Any:
    """As it was made, but by the built-in class that it is of alone: others' may take anything."""
    if isinstance(error, BaseExceptionGroup):
        return error.derive([again(part) for part in error.exceptions])
    kind = type(error)
    built_in: Any = next(base for base in kind.__mro__ if base.__module__ == builtins.__name__)
    made = built_in.__new__(kind, *error.args)
    built_in.__init__(made, *error.args)
    made.args = error.args
    for name in ("name", "path"):  # of those that the interpreter itself raises
        if name not in error.__dict__ and hasattr(built_in, name):
            setattr(made, name, getattr(error, name))
    return made


__all__ = ["TEXT", "again", "attributes", "keep", "trace_of"]
