"""Which process may start next, and for how long: pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .parts import Part

RESTARTS = 8  # fresh processes that a shard gets after crashes
LEAST = 5.0  # seconds under which nothing is started


@dataclass(frozen=True)
class Start:
    """A process: a shard of a part, its limit in seconds, and the cases to pass over."""

    part: Part
    shard: int
    seconds: float
    after: tuple[str, ...] = ()


@dataclass
class Schedule:
    """``width``: how many processes at once; ``budget``: seconds for everything."""

    parts: Sequence[Part]
    width: int
    budget: float
    waiting: list[Start] = field(default_factory=list)
    running: list[Start] = field(default_factory=list)
    left_out: list[Start] = field(default_factory=list)  # for which there was no time
    restarts: dict[tuple[str, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.waiting = [
            Start(part, shard, part.seconds) for part in self.parts for shard in range(part.shards)
        ]

    def next(self, now: float) -> Start | None:
        """What to start at ``now`` (seconds since the beginning); None: nothing yet."""
        if not self.waiting or (self.running and self.running[0].part.alone):
            return None
        first = self.waiting[0]
        if first.part.alone:
            if self.running:
                return None
        elif len(self.running) >= self.width:
            return None
        self.waiting.pop(0)
        seconds = min(first.seconds, self.budget - now)
        if seconds < LEAST:
            self.left_out.append(first)
            return self.next(now)
        start = Start(first.part, first.shard, seconds, first.after)
        self.running.append(start)
        return start

    def ended(self, start: Start, took: float, begun: Sequence[str], whole: bool) -> bool:
        """A process has ended. ``begun``: the cases that it, and those before it, began; ``whole``:
        it came to its end. True where a fresh process will go on after what broke this one."""
        self.running.remove(start)
        key = start.part.name, start.shard
        left = start.seconds - took
        again = not whole and len(begun) > len(start.after) and left > LEAST
        if not again or self.restarts.get(key, 0) >= RESTARTS:
            return False
        self.restarts[key] = self.restarts.get(key, 0) + 1
        self.waiting.insert(0, Start(start.part, start.shard, left, tuple(begun)))
        return True

    @property
    def over(self) -> bool:
        return not self.waiting and not self.running
