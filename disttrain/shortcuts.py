"""Shorter ways that a computation may go for the sizes at hand, where a number divides another,
say. A program that is to serve all sizes cannot go them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _Ways(threading.local):
    barred = False
    asked = False  # whether something would have gone another way


_ways = _Ways()


def barred() -> bool:
    """Whether a computation is to go the way that serves all sizes."""
    _ways.asked = True
    return _ways.barred


@contextmanager
def shortcuts(allowed: bool) -> Iterator[Callable[[], bool]]:
    """Whether they are allowed in the block; what it gives says whether a computation has asked."""
    before = _ways.barred, _ways.asked
    _ways.barred, _ways.asked = not allowed, False
    try:
        yield lambda: _ways.asked
    finally:
        _ways.barred, _ways.asked = before
