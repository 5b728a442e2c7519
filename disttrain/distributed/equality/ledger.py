"""What a rank has asked to be equal on all ranks of a group, in order.

The hashes of all values since the last call that carried something are folded into one, which the
next collective carries. The latest values are kept with their leaves, so that ranks can say, when
digests differ, which value is the first that does.
"""

from __future__ import annotations

import struct
import threading
from collections import deque
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from ...comm.group.carried import Carried
from ...errors import CollectiveMismatch
from .leaves import Leaf, clipped, combined

KEPT, KEPT_LEAVES = 1024, 1 << 16  # values, and leaves of all of them
_LATEST = 8  # values that a call's text names
_TOLD = 160  # characters of all of them in a call's text
_TWO = struct.Struct("<QQ")
_making = threading.Lock()


class Entry(NamedTuple):
    """A value: what the program calls it, its leaves, and where it was given."""

    name: str
    hash: int
    leaves: Sequence[Leaf]
    site: str
    kind: str = "value"

    @property
    def told(self) -> str:
        """In a few words."""
        what = self.leaves[0].told if len(self.leaves) == 1 else f"{len(self.leaves)} parts"
        return f"{self.name or 'a value'}={clipped(what, 40)}"


def entry(name: str, parts: Sequence[Leaf], site: str, kind: str = "value") -> Entry:
    """``name`` counts: other names are other values."""
    whole = combined([Leaf(f"{kind} {name}", combined(parts), "")])
    return Entry(name, whole, parts, site, kind)


class Carriage(NamedTuple):
    """The values ``start .. end - 1`` of a rank, counted from 0."""

    digest: int
    told: str
    start: int
    end: int


class Ledger:
    """Of one group. ``explain``: see ``carried.Ledger``; it gets this, too."""

    def __init__(self, explain: Callable[..., Exception]) -> None:
        self._explain, self._lock = explain, threading.Lock()
        self._kept: deque[Entry] = deque()
        self._count = self._start = self._leaves = 0
        self._digest = 0

    @property
    def pending(self) -> bool:
        return self._digest != 0

    def add(self, value: Entry) -> None:
        """The next value."""
        with self._lock:
            if len(self._kept) == KEPT:
                self._forget()
            self._kept.append(value)
            self._leaves += len(value.leaves)
            while self._leaves > KEPT_LEAVES and len(self._kept) > 1:
                self._forget()
            self._count += 1
            data = _TWO.pack(self._digest, value.hash)
            self._digest = int.from_bytes(blake2b(data, digest_size=8).digest(), "little") or 1

    def _forget(self) -> None:
        self._leaves -= len(self._kept.popleft().leaves)

    def take(self) -> Carriage:
        with self._lock:
            start, end, digest = self._start, self._count, self._digest
            self._start, self._digest = end, 0
            latest = [e.told for e in list(self._kept)[max(start - end, -_LATEST) :]]
        return Carriage(digest, clipped(", ".join(latest), _TOLD), start, end)

    def kept(self, carried: Carriage) -> tuple[int, list[Entry]]:
        """The values that a call has carried, and how many before them are not kept any more."""
        with self._lock:
            kept, first = list(self._kept), self._count - len(self._kept)
        lost = max(0, first - carried.start)
        return lost, kept[max(0, carried.start - first) : carried.end - first]

    def explain(self, carried: Any, number: int, error: CollectiveMismatch) -> Exception:
        """What to raise where digests differ."""
        return self._explain(self, carried, number, error)


def ledger_of(group: Any, explain: Callable[..., Exception]) -> Ledger:
    """The ledger of a group, whose calls carry from now on what is in it."""
    if not isinstance(group.transport, Carried):
        with _making:
            known = group.__dict__.setdefault("_equality", Ledger(explain))
            if not isinstance(group.transport, Carried):
                group.transport = Carried(group.transport, known)
    found: Ledger = group.__dict__["_equality"]
    return found
