"""Functions that stand in for others of this package while somebody looks at what a process does.

Several may look at the same function, and end in any order: each stands on what was there before,
and when one goes the others are built anew on what remains.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

Make = Callable[[Any], Any]  # of what stands there, what stands in for it

_lock = threading.RLock()
_places: dict[tuple[int, str], _Place] = {}


class _Place:
    """An attribute of ``owner``: its ``own`` function, and who stands in for it, in their order."""

    def __init__(self, owner: Any, name: str) -> None:
        self.owner, self.name, self.own = owner, name, vars(owner)[name]
        self.stands, self.layers = self.own, list[tuple[StandIns, Make]]()

    def build(self) -> None:
        """Let the layers stand there. What a program has put over them stays."""
        if vars(self.owner).get(self.name) is not self.stands:
            return
        function = self.own
        for _, make in self.layers:
            function = functools.wraps(function)(make(function))
        self.stands = function
        setattr(self.owner, self.name, function)


class StandIns:
    """What one of those who look has put in place. ``join`` and ``leave`` count its users: it is
    ``set_up`` for the first of them, and taken back with the last."""

    def __init__(self, set_up: Callable[[StandIns], None] | None = None) -> None:
        self._set_up, self._users = set_up, 0

    def join(self) -> None:
        """One more looks."""
        with _lock:
            self._users += 1
            if self._users == 1 and self._set_up is not None:
                self._set_up(self)

    def leave(self) -> None:
        """One of them does no longer."""
        with _lock:
            self._users -= 1
            if not self._users:
                self.take_back()

    def put(self, owner: Any, name: str, make: Make) -> None:
        """Let ``make(what stands there)`` stand in for ``owner``'s own attribute."""
        with _lock:
            key = (id(owner), name)
            place = _places.get(key)
            if place is None:
                place = _places[key] = _Place(owner, name)
            place.layers.append((self, make))
            place.build()

    def take_back(self) -> None:
        """Undo all of it."""
        with _lock:
            for key, place in list(_places.items()):
                left = [layer for layer in place.layers if layer[0] is not self]
                if len(left) == len(place.layers):
                    continue
                place.layers = left
                place.build()
                if not left:
                    del _places[key]
