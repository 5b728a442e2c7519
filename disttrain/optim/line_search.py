"""A line search for the strong Wolfe conditions (Nocedal and Wright 2006, algorithms 3.5 and 3.6).

It knows functions of one number and their slopes, no tensors: a ``Point`` may carry anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

SUFFICIENT, CURVATURE = 1e-4, 0.9  # the constants of the two conditions


class Point(NamedTuple):
    """A step size, the value and the slope there, and the gradient that gave the slope."""

    t: float
    value: float
    slope: float
    gradient: Any = None


def cubic_minimum(a: Point, b: Point, low: float, high: float) -> float:
    """Where the cubic through two points and their slopes is least, within ``low..high``; the
    middle where it has no minimum."""
    if a.t > b.t:
        a, b = b, a
    width = b.t - a.t
    rise = 3 * (a.value - b.value) / (a.t - b.t) if width else math.nan
    d1 = a.slope + b.slope - rise
    square = d1 * d1 - a.slope * b.slope
    if not square >= 0:
        return (low + high) / 2
    d2 = math.sqrt(square)
    below = b.slope - a.slope + 2 * d2
    if not below:
        return (low + high) / 2
    return min(max(b.t - width * ((b.slope + d2 - d1) / below), low), high)


class _Search:
    """One search: how the function is asked, and how often it may be."""

    def __init__(
        self, ask: Callable[[float], Point], start: Point, narrow: float, limit: int
    ) -> None:
        self.ask, self.start, self.narrow, self.limit = ask, start, narrow, limit
        self.calls = self.turns = 0

    def at(self, t: float) -> Point:
        self.calls += 1
        return self.ask(t)

    def too_high(self, x: Point) -> bool:
        return x.value > self.start.value + SUFFICIENT * x.t * self.start.slope

    def flat(self, x: Point) -> bool:
        return abs(x.slope) <= -CURVATURE * self.start.slope

    def bracket(self, t: float) -> tuple[list[Point], bool]:
        """One point that will do, or two with one between them."""
        before, now = self.start, self.at(t)
        while self.turns < self.limit:
            if self.too_high(now) or (self.turns > 1 and now.value >= before.value):
                return [before, now], False
            if self.flat(now):
                return [now], True
            if now.slope >= 0:
                return [before, now], False
            nearest = now.t + 0.01 * (now.t - before.t)
            t = cubic_minimum(before, now, nearest, now.t * 10)
            before, now = now, self.at(t)
            self.turns += 1
        return [self.start, now], False

    def zoom(self, low: Point, high: Point) -> Point:
        """Narrow the bracket until a point in it will do; ``low`` has the lesser value."""
        stalled = False
        while self.turns < self.limit:
            width = abs(high.t - low.t)
            if width < self.narrow:
                break
            t, stalled = self._between(low, high, width, stalled)
            new = self.at(t)
            self.turns += 1
            if self.too_high(new) or new.value >= low.value:
                high = new
                if low.value > high.value:
                    low, high = high, low
                continue
            if self.flat(new):
                return new
            if new.slope * (high.t - low.t) >= 0:
                high = low
            low = new
        return low

    def _between(self, low: Point, high: Point, width: float, stalled: bool) -> tuple[float, bool]:
        """The next step size; away from the ends where the search has come to stand there."""
        first, last = min(low.t, high.t), max(low.t, high.t)
        t = cubic_minimum(low, high, first, last)
        edge = 0.1 * width
        if min(last - t, t - first) >= edge:
            return t, False
        if stalled or t >= last or t <= first:
            return (last - edge if abs(t - last) < abs(t - first) else first + edge), False
        return t, True


def strong_wolfe(
    ask: Callable[[float], Point], start: Point, t: float, narrow: float, limit: int
) -> tuple[Point, int]:
    """A step size that meets both conditions, tried first at ``t``; and how often ``ask`` was
    called. A bracket narrower than ``narrow`` is not narrowed further. At most ``limit`` turns."""
    search = _Search(ask, start, narrow, limit)
    found, done = search.bracket(t)
    if done:
        return found[0], search.calls
    low, high = found if found[0].value <= found[1].value else reversed(found)
    return search.zoom(low, high), search.calls
