"""Blocks of code that one thread of a worker runs at a time, whatever they wait for inside."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ... import context


class _Turns:
    """``lock`` is held by thread ``who`` (None: by nobody)."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.who: int | None = None


@contextmanager
def one_at_a_time(key: str, what: str) -> Iterator[None]:
    """The blocks of this worker that have the same ``key`` take turns; a thread that is in one may
    enter another. ``what``: what others are waited for, in messages."""
    turns: _Turns = context.current().slot(key, _Turns)
    me = threading.get_ident()
    if turns.who == me:
        yield
        return
    held = False

    def take() -> bool:  # (a simulator asks from a thread of its own)
        nonlocal held
        held = held or turns.lock.acquire(blocking=False)
        return held

    def block(seconds: float) -> None:
        nonlocal held
        held = held or turns.lock.acquire(timeout=seconds)

    context.wait_until(take, lambda: what, None, block)
    turns.who = me
    try:
        yield
    finally:
        turns.who = None
        turns.lock.release()
