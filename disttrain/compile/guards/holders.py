"""Holders: things whose content can change, and the comparison of many at once.

Content is compared by identity, in a few passes that run in C: a guard is checked at every call.
So all content is laid out flat: one list of values, from views that stay, and one of keys.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from itertools import chain
from operator import itemgetter
from typing import Any

from .identity import alike
from .kinds import same, shown

# Types whose views show what is there now, whatever subclasses of them make of it.
_PLAIN = (dict, OrderedDict, defaultdict, list, deque)
DICT, NAMES, OBJECT, SEQUENCE, CELL, FACT, ABSENT = range(7)


class _Missing:
    def __repr__(self) -> str:
        return "nothing"


MISSING = _Missing()


class Holder:
    """One thing that can change, and which part of it counts.

    ``DICT``: keys and values; ``NAMES``: the values under ``names``; ``OBJECT``: keys, and the
    values under ``names``; ``SEQUENCE``, ``CELL``: what is in it; ``FACT``: what ``reader`` says;
    ``ABSENT``: that there is nothing under ``names``.
    """

    __slots__ = ("kind", "names", "reader", "then", "thing", "where")

    def __init__(
        self,
        kind: int,
        thing: Any,
        where: str,
        names: tuple = (),
        reader: Callable[[], tuple] | None = None,
    ) -> None:
        self.kind, self.thing, self.where, self.names = kind, thing, where, names
        self.reader = reader
        self.then = self.read()

    def read(self) -> tuple:
        """The content, as objects."""
        kind, thing = self.kind, self.thing
        if kind == DICT:
            return (*thing.keys(), *thing.values())
        if kind == NAMES:
            return tuple(thing.get(name, MISSING) for name in self.names)
        if kind == OBJECT:
            return (*thing.keys(), *(thing.get(name, MISSING) for name in self.names))
        if kind == SEQUENCE:
            return tuple(thing)
        if kind == ABSENT:
            return (thing.keys().isdisjoint(self.names),)
        if kind == CELL:
            try:
                return (thing.cell_contents,)
            except ValueError:  # not filled yet, or emptied
                return (MISSING,)
        return self.reader()  # type: ignore[misc]

    def change(self, now: tuple) -> str | None:
        """What differs between ``now`` and what was."""
        then = self.then
        if len(now) != len(then):
            return f"{self.where} has other entries"
        for i, (a, b) in enumerate(zip(then, now, strict=True)):
            if not same(a, b):
                return self._told(i, a, b)
        return None

    def _told(self, i: int, a: object, b: object) -> str:
        names = self.names
        at = i - (len(self.then) - len(names))
        where = self.where
        if names and at >= 0:
            where = names[at] if where == "global" else f"{where}.{names[at]}"
        elif self.kind == DICT:
            keys = list(self.thing)
            where = f"{where}[{keys[i % len(keys)]!r}]" if keys else where
        kinds = (str, int, float, bool, type(None))
        if isinstance(a, kinds) or isinstance(b, kinds):
            return f"{where}: {shown(a)} became {shown(b)}"
        return f"{where} was replaced"


class Guard:
    """Many holders, checked together."""

    def __init__(self, holders: Iterable[Holder]) -> None:
        self.holders = list(holders)
        self._lay_out()

    def _lay_out(self) -> None:
        self.with_keys: list[Any] = []
        self.empty: list[Any] = []
        self.whole: list[Any] = []  # views of the values of dicts, and sequences
        self.picks: list[Any] = []
        self.cells: list[Any] = []
        self.readers: list[Any] = []
        for h in self.holders:
            self._place(h)
        self.keys = list(chain.from_iterable(self.with_keys))
        self.then = self._now()

    def _place(self, h: Holder) -> None:
        """Put a holder where it is compared fastest."""
        kind, thing, names = h.kind, h.thing, h.names
        if kind in (DICT, SEQUENCE) and type(thing) in _PLAIN and not thing:
            self.empty.append(thing)
        elif kind == DICT and type(thing) in _PLAIN and all(isinstance(k, str) for k in thing):
            self.with_keys.append(thing)
            self.whole.append(thing.values())
        elif kind == OBJECT and not any(v is MISSING for v in h.then):
            self.with_keys.append(thing)
            if len(names) == len(thing) and type(thing) is dict:
                self.whole.append(thing.values())
            elif names:
                self.picks.append((_picker(names), thing))
        elif kind == NAMES and not any(v is MISSING for v in h.then):
            if names:
                self.picks.append((_picker(names), thing))
        elif kind == CELL and h.then[0] is not MISSING:
            self.cells.append(thing)
        elif kind == SEQUENCE:
            self.whole.append(thing)
        else:
            self.readers.append(h.read)

    def _now(self) -> list:
        now = list(chain.from_iterable(self.whole))
        for c in self.cells:
            now.append(c.cell_contents)
        for pick, thing in self.picks:
            now += pick(thing)
        for read in self.readers:
            now += read()
        return now

    def stale(self) -> str | None:
        """What has changed, if anything has."""
        try:
            now = self._now()
        except (KeyError, ValueError):  # an attribute or the content of a cell is gone
            return self._changes()
        if alike(now, self.then) and not any(self.empty):
            keys = list(chain.from_iterable(self.with_keys))
            if alike(keys, self.keys) or keys == self.keys:
                return None
        why = self._changes()
        if why is None:  # other objects of the same meaning
            for h in self.holders:
                h.then = h.read()
            self._lay_out()
        return why

    def _changes(self) -> str | None:
        for h in self.holders:
            why = h.change(h.read())
            if why is not None:
                return why
        return None


def _picker(names: tuple) -> Callable[[Any], tuple]:
    if len(names) == 1:
        name = names[0]
        return lambda space: (space[name],)
    return itemgetter(*names)
