"""Graphs that grow or live too long, captures that do not last, and moves that repeat."""

from __future__ import annotations

import gc
import weakref
from collections import deque
from typing import Any

from ..core.node import AccumulateGrad, Output
from .places import Place, here
from .session import Call, Held, Session, Walked

_GROWN = 8  # walks in a row, each of a larger graph
_OLD, _MANY = 8, 32  # walks after which a graph is old; old graphs that are too many
_CAPTURES = 8
_MOVES = 10


class Growing:
    """growing-graph."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.sizes: dict[Place, tuple[int, int]] = {}  # of a line: the last size, times it grew
        self.steps: deque[int] = deque(maxlen=3)  # number of the newest node, at each step
        self.newest = 0

    def before_walk(self, found: Walked) -> None:
        size = len(found.walk.pending)
        before, times = self.sizes.get(found.place, (size, 0))
        times = times + 1 if size > before else 0
        self.sizes[found.place] = (size, times)
        root = found.roots[0].graph_node()
        self.newest = (root.node if root.__class__ is Output else root).seq
        if times < _GROWN or len(self.steps) < 3:
            return
        nodes = [n.seq for n in found.walk.pending if n.__class__ is not AccumulateGrad]
        if nodes and min(nodes) < self.steps[0]:
            text = f"backward walks {size} nodes, more than each of the last {times} times"
            self.session.add("growing-graph", found.place, text)

    def after_step(self, optimizer: Any, held: Held) -> None:
        if not any(g.get("differentiable") for g in getattr(optimizer, "param_groups", ())):
            self.steps.append(self.newest)


class Kept:
    """graph-kept-alive."""

    def __init__(self, session: Session) -> None:
        self.session = session
        # Nodes, after how many walks they came, where, and the calls that have given them.
        self.rows: deque[tuple[Any, int, Place, Call | None]] = deque(maxlen=1 << 10)
        self.looked = 0

    def before_walk(self, found: Walked) -> None:
        root = found.roots[0].graph_node()
        node = root.node if root.__class__ is Output else root
        if node.__class__ is not AccumulateGrad:
            self.rows.append((weakref.ref(node), found.number, found.place, None))
        if found.number - self.looked >= _MANY:
            self.looked = found.number
            self._look(found.number)

    def leave(self, call: Call, out: Any) -> None:
        if call.node is not None:
            self.rows.append((call.node, self.session.walks, call.place, call))

    def _look(self, now: int) -> None:
        if len(self._old(now)) < _MANY:
            return
        gc.collect()
        old = self._old(now)
        if len(old) < _MANY:
            return
        places = [row[2] for row in old]
        place = max(set(places), key=places.count)
        text = f"{len(old)} results of earlier steps are alive with their graphs"
        self.session.add("graph-kept-alive", place, text)

    def _old(self, now: int) -> list[tuple[Any, int, Place, Call | None]]:
        """Those that live on; what a backward has walked counts once, by its root."""
        self.rows = deque(
            [r for r in self.rows if r[0]() is not None and not (r[3] and r[3].walked)],
            maxlen=1 << 10,
        )
        return [r for r in self.rows if now - r[1] >= _OLD]


class Captures:
    """retrace-storm."""

    def __init__(self, session: Session) -> None:
        self.session = session
        # Of a compiled function: calls, captures.
        self.known: weakref.WeakKeyDictionary[Any, list[int]] = weakref.WeakKeyDictionary()

    def called(self, compiled: Any, out: Any) -> None:
        self.known.setdefault(compiled, [0, 0])[0] += 1

    def captured(self, compiled: Any, why: str) -> None:
        row = self.known.setdefault(compiled, [0, 0])
        row[1] += 1
        if row[1] >= _CAPTURES and 2 * row[1] >= row[0]:
            name = getattr(compiled.fn, "__name__", type(compiled.fn).__name__)
            text = f"{name}: {row[1]} captures in {row[0] + 1} calls; the last because {why}"
            self.session.add("retrace-storm", here(), text)


class Moves:
    """tensor-moved-in-loop."""

    def __init__(self, session: Session) -> None:
        self.session = session
        # By id of an array: it, the step of its last move, steps in which it was moved, its first
        # numbers.
        self.known: dict[int, list] = {}

    def moved(self, array: Any, to: Any) -> None:
        if not self.session.steps:
            return
        row = self.known.get(id(array))
        step = self.session.steps
        if row is None or row[0]() is not array:
            self._forget(step)
            try:
                self.known[id(array)] = [weakref.ref(array), step, 1, _start_of(array)]
            except TypeError:  # of a kind that cannot be referred to
                return
            return
        if step == row[1]:
            return
        start = _start_of(array)
        row[2] = row[2] + 1 if step == row[1] + 1 and start == row[3] else 1
        row[1], row[3] = step, start
        if row[2] == _MOVES:
            text = f"the same tensor of shape {list(array.shape)} is moved to {to} in each step"
            self.session.add("tensor-moved-in-loop", here(), text)

    def _forget(self, step: int) -> None:
        if len(self.known) > 256:
            self.known = {k: r for k, r in self.known.items() if step - r[1] < 3}


def _start_of(array: Any) -> bytes | int:
    """What shows that it was written to; of a device nothing is fetched."""
    if not hasattr(array, "tobytes") or not hasattr(array, "reshape"):
        return 0
    return array.reshape(-1)[:64].tobytes()


CHECKS = (Growing, Kept, Captures, Moves)
__all__ = ["CHECKS", "Captures", "Growing", "Kept", "Moves"]
