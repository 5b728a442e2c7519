"""The end of a rank's program: what is looked after then, whoever has started the process."""

from __future__ import annotations

import atexit
from collections.abc import Callable

from ... import context
from .segment import JOB_SLOT


def at_end(look_after: Callable[[], None]) -> None:
    """Have it called when the calling rank's program has ended, well or not. What it raises makes
    an error of the end where our launcher has started the rank; elsewhere it is printed."""
    me = context.current()
    me.at_end.append(look_after)
    if JOB_SLOT not in me.slots:  # else our launcher ends it, behind the exit handlers, whose
        atexit.unregister(_end_of_process)  # errors are lost
        atexit.register(_end_of_process)


def never_mind(look_after: Callable[[], None], me: context.Rank) -> None:
    """It has been looked after already."""
    if look_after in me.at_end:
        me.at_end.remove(look_after)


def _end_of_process() -> None:
    context.current().end()
