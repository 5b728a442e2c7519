"""Streams and events with clocks: what happened before what.

All work is done at once, in the order of the program; the clocks tell whether a device would have
had to do it in that order. A ``Clock`` has, for each stream, how much of its work is known to come
before. Each operation is a ``Point``: a stream and a number there.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from disttrain.backends.device.platform import Event, Stream


class StreamRace(RuntimeError):
    """Two streams use memory, one writes, and no event orders them."""


class Point:
    """An operation's place in a stream, and in the program."""

    __slots__ = ("code", "line", "name", "stream", "tick")

    def __init__(self, stream: int, tick: int, name: str) -> None:
        self.stream, self.tick, self.name = stream, tick, name
        frame: Any = sys._getframe(2)
        while frame.f_back is not None and _inside(frame.f_code.co_filename):
            frame = frame.f_back
        self.code, self.line = frame.f_code, frame.f_lineno

    def __str__(self) -> str:
        file = "/".join(self.code.co_filename.split("/")[-3:])
        return f"{self.name} on stream {self.stream} ({file}:{self.line})"


def _inside(file: str) -> bool:
    return "/device_double/" in file or "/numpy/" in file or "/backends/" in file


class Clock:
    """How much of each stream's work lies before."""

    __slots__ = ("ticks",)

    def __init__(self, ticks: dict[int, int] | None = None) -> None:
        self.ticks = {} if ticks is None else ticks

    def covers(self, point: Point) -> bool:
        return self.ticks.get(point.stream, 0) >= point.tick

    def merge(self, other: Clock) -> None:
        for stream, tick in tuple(other.ticks.items()):  # other threads add some meanwhile
            if self.ticks.get(stream, 0) < tick:
                self.ticks[stream] = tick

    def copy(self) -> Clock:
        return Clock(dict(self.ticks))


class DoubleStream(Stream):
    """A stream of the double. ``clock``: what lies before the next operation on it."""

    def __init__(self, platform: Any, index: int, priority: int, number: int) -> None:
        self.platform, self.index, self.priority, self.id = platform, index, priority, number
        self.clock = Clock()

    @property
    def handle(self) -> int:
        return self.id

    def wait_event(self, event: Event) -> None:
        assert isinstance(event, DoubleEvent)
        if event.clock is not None:
            self.clock.merge(event.clock)

    def query(self) -> bool:
        return self.platform.passed(self.clock)

    def synchronize(self) -> None:
        self.platform.wait_for(self.clock, f"stream {self.id}")


class DoubleEvent(Event):
    """An event of the double."""

    def __init__(self, platform: Any, timing: bool) -> None:
        self.platform, self.timing = platform, timing
        self.clock: Clock | None = None
        self.index: int | None = None
        self.at = 0.0

    def record(self, stream: Stream) -> None:
        assert isinstance(stream, DoubleStream)
        self.platform.tick(stream, "event")
        self.clock, self.index, self.at = stream.clock.copy(), stream.index, time.perf_counter()

    def query(self) -> bool:
        return self.clock is None or self.platform.passed(self.clock)

    def synchronize(self) -> None:
        if self.clock is not None:
            self.platform.wait_for(self.clock, "event")

    def elapsed_time(self, end: Event) -> float:
        assert isinstance(end, DoubleEvent)
        for event in (self, end):
            if not event.timing or event.clock is None:
                raise RuntimeError("elapsed_time: both events must be recorded, with timing")
            if not self.platform.passed(event.clock):
                raise RuntimeError("elapsed_time: an event is not reached yet")
        return (end.at - self.at) * 1e3
