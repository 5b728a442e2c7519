"""Names on a profiler's time line (NVIDIA's tools extension). Without a device, nothing happens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..context import current
from .which import started


def range_push(msg: str) -> int:
    """A range of this name begins; returns how many are around it."""
    open_ones = _open()
    open_ones.append(msg)
    found = started()
    if found is not None:
        found.note(msg)
    return len(open_ones) - 1


def range_pop() -> int:
    """The last range ends; returns how many are around it, -1 where there was none."""
    open_ones = _open()
    if not open_ones:
        return -1
    open_ones.pop()
    found = started()
    if found is not None:
        found.note(None)
    return len(open_ones)


def _open() -> list[str]:
    """The names of the rank's ranges that have not ended."""
    return current().slot("cuda.nvtx", list)


def mark(msg: str) -> None:
    """A range of no length."""
    range_push(msg)
    range_pop()


@contextmanager
def range(msg: str, *args: object, **kwargs: object) -> Iterator[None]:  # noqa: A001  (the field's name)
    """The block is a range; ``msg`` may have fields, which the other arguments fill."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()


__all__ = ["mark", "range", "range_pop", "range_push"]
