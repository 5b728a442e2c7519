"""Helps for those who look at a job: names for what a profiler sees of communication."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..profiler import named_comm


@contextmanager
def record_comm(name: str) -> Iterator[None]:
    """Collectives that this thread starts inside the block stand in a profile as ``name``, in place
    of "gloo:all_reduce" and the like."""
    before = named_comm.name
    named_comm.name = name
    try:
        yield
    finally:
        named_comm.name = before
