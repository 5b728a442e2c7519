"""Memory of a device double: what is given out, who used it last, what becomes of it once freed.

A ``Memory`` remembers its last writer and the readers since as points of streams (``streams.py``),
so that a use which no event orders is an error there. Freed memory is filled with what looks like
nothing; its stream may give it out again at once, as caching allocators do, so that this is an
error while another stream still uses it (unless that was told: ``record_use``). Knows no array.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from disttrain.errors import OutOfMemoryError

from .streams import Clock, DoubleStream, Point, StreamRace

ROUND = 512  # CuPy's and PyTorch's allocators give out multiples of this


def poison(array: np.ndarray) -> None:
    """Fill a contiguous array with NaN, or what does as little good: numbers far out."""
    cells = array.ravel("K")
    if array.dtype.kind == "b":
        cells[::2] = True
        cells[1::2] = False
    else:
        cells.view(np.uint8)[...] = 0xA5 if array.dtype.kind in "iu" else 0xFF


class Ledger:
    """What one device gave out. ``total``: bytes it has."""

    def __init__(self, index: int, total: int) -> None:
        self.index, self.total = index, total
        self.allocated = self.peak = self.reserved = self.peak_reserved = self.allocations = 0
        self.used_elsewhere: dict[int, list[tuple[int, list[Point]]]] = {}  # by home stream

    def take(self, size: int, stream: DoubleStream, point: Point) -> None:
        """Give out ``size`` bytes on a stream. Raises ``StreamRace``,
        ``OutOfMemoryError``."""
        for freed, uses in self.used_elsewhere.pop(stream.id, ()):
            left = [p for p in uses if not stream.clock.covers(p)]
            if left and size <= freed:
                raise StreamRace(
                    f"{point}: memory is given out again that was freed while in use by {left[0]}; "
                    "record_use it there, or wait for an event of that stream before"
                )
            if left:
                self.used_elsewhere.setdefault(stream.id, []).append((freed, left))
        self.room(size)
        self.allocated += size
        self.allocations += 1
        self.peak = max(self.peak, self.allocated)
        self.reserved = max(self.reserved, self.allocated)
        self.peak_reserved = max(self.peak_reserved, self.reserved)

    def room(self, size: int) -> None:
        """Raise ``OutOfMemoryError`` where there is none for so many bytes more."""
        if self.allocated + size > self.total:
            raise OutOfMemoryError(
                f"cuda:{self.index}: {size} bytes asked, {self.total - self.allocated} of "
                f"{self.total} are free"
            )

    def give(self, memory: Memory) -> None:
        """Take memory back."""
        self.allocated -= memory.size
        uses = list(memory.readers.values()) + ([memory.writer] if memory.writer else [])
        home = memory.home
        left = [p for p in uses if p.stream not in memory.told and not home.clock.covers(p)]
        if left:
            self.used_elsewhere.setdefault(home.id, []).append((memory.size, left))
        if memory.owner.flags.writeable and memory.owner.flags.forc:
            poison(memory.owner)


class Memory:
    """One allocation. ``owner``: the hidden array of numpy that has it; ``home``: the stream."""

    __slots__ = (
        *("__weakref__", "home", "ledger", "owner", "platform", "readers", "size", "told"),
        "writer",
    )

    def __init__(
        self, platform: Any, owner: np.ndarray, ledger: Ledger, home: DoubleStream, point: Point
    ) -> None:
        self.platform, self.owner, self.ledger, self.home = platform, owner, ledger, home
        self.size = 0
        self.writer: Point | None = point
        self.readers: dict[int, Point] = {}
        self.told: set[int] = set()
        size = -(-owner.nbytes // ROUND) * ROUND
        ledger.take(size, home, point)
        self.size = size

    def __del__(self) -> None:
        if self.size:
            self.ledger.give(self)

    def read(self, clock: Clock, point: Point) -> None:
        """``point`` reads. Raises ``StreamRace``."""
        w = self.writer
        if w is not None and not clock.covers(w):
            raise race(point, "reads what is written by", w)
        self.readers[point.stream] = point

    def write(self, clock: Clock, point: Point) -> None:
        """``point`` writes. Raises ``StreamRace``."""
        w = self.writer
        if w is not None and not clock.covers(w):
            raise race(point, "overwrites what is written by", w)
        for r in self.readers.values():
            if not clock.covers(r):
                raise race(point, "overwrites what is read by", r)
        self.readers.clear()
        self.writer = point


def race(later: Point, does: str, earlier: Point) -> StreamRace:
    """The error where no event leads from ``earlier`` to ``later``."""
    return StreamRace(f"{later}: {does} {earlier}; no event orders them")


def owner_of(array: np.ndarray) -> Any:
    """The array whose memory ``array`` has."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
