"""Types that operations compute in, chosen by what surrounds them: where that is kept. Knows no
operation and no type; ``amp`` does."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...context import thread


class casting:  # noqa: N801  (reads as a word of the statement)
    """Inside the block ``chooser`` (None: nobody) sees the arguments of every operation first:
    ``chooser.cast(primitive, args)`` gives those to compute with."""

    __slots__ = ("before", "chooser", "depth")

    def __init__(self, chooser: Any) -> None:
        self.chooser = chooser

    def __enter__(self) -> None:
        self.before, thread.autocast = thread.autocast, self.chooser
        self.depth, thread.autocast_depth = thread.autocast_depth, thread.depth
        thread.refresh()

    def __exit__(self, *exc: object) -> None:
        thread.autocast, thread.autocast_depth = self.before, self.depth
        thread.refresh()


def computes_in(how: str) -> Callable[[Callable], Callable]:
    """A function composed of several operations of which the chooser is to see one: ``how`` is
    "lower", "full", "widest" (of its arguments' types) or "own" (each its type: what is inside
    is not seen)."""

    def around(fn: Callable) -> Callable:
        @functools.wraps(fn)
        def run(*args: object, **kwargs: object) -> Any:
            chooser = thread.autocast
            if chooser is None:
                return fn(*args, **kwargs)
            return chooser.around(how, fn, args, kwargs)

        return run

    return around
