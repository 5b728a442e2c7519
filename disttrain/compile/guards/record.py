"""A record: everything that a capture compares by identity, taken down for one native pass.

A guard compares in Python, and says what changed. That costs some microseconds for each hundred
values, at every call; mostly nothing has changed. So once a guard found nothing, what it looked at
is taken down (``Pointers``), and later calls ask that first. Whatever differs, the guard decides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from ...backends.llvm.native import Unavailable
from ...backends.llvm.pointers import Pointers
from .holders import ABSENT, CELL, DICT, MISSING, NAMES, OBJECT, SEQUENCE, Holder
from .identity import alike
from .readers import Classes

_DICTS = (dict, defaultdict)  # (an OrderedDict has an order that its dict does not know)
_TIMES = 8  # that a record is made anew; what goes on changing is compared by its guard alone

Reader = Callable[[], Iterable[Any]]


class Record:
    """Whether all that was taken down is still so. What native code cannot read is asked for."""

    def __init__(self) -> None:
        self._left = _TIMES
        self._intact: Callable[[], bool] | None = None
        self._readers: list[Reader] = []
        self._then: list[Any] = []

    def holds(self) -> bool:
        """Whether nothing has changed. (False where nothing is taken down.)"""
        if self._intact is None or not self._intact():
            return False
        now: list[Any] = []
        for read in self._readers:
            now += read()
        return alike(now, self._then)

    def take(self, fill: Callable[[Pointers], list[Reader]]) -> None:
        """Take down, as it is now, what ``fill`` puts in; it gives readers of the rest."""
        self._intact = None
        if not self._left:
            return
        self._left -= 1
        pointers = Pointers()
        self._readers = fill(pointers)
        self._then = [x for read in self._readers for x in read()]
        try:
            self._intact = pointers.sealed()
        except Unavailable:
            self._left = 0


def take_holder(h: Holder, pointers: Pointers) -> bool:
    """Put what a holder holds into a record, if it can be."""
    kind, thing = h.kind, h.thing
    if isinstance(h.reader, Classes):
        for x in h.reader.objects:
            pointers.type_of(x)
        taken = [pointers.dict_of(x) for x in h.reader.with_dicts]
        return all(taken)
    if kind in (DICT, OBJECT) and type(thing) in _DICTS:
        pointers.mapping(thing, h.names if kind == OBJECT else None)
    elif kind in (NAMES, ABSENT) and type(thing) in _DICTS:
        pointers.names(thing, h.names)
    elif kind == SEQUENCE and type(thing) is list:
        pointers.sequence(thing)
    elif kind == CELL and h.then[0] is not MISSING:
        pointers.cell(thing)
    else:
        return False
    return True


def take_holders(holders: Iterable[Holder], pointers: Pointers) -> list[Reader]:
    """Put holders into a record; the readers of those that cannot be."""
    return [h.read for h in holders if not take_holder(h, pointers)]


def take_attributes(
    objects: Iterable[Any], names: tuple[str, ...], pointers: Pointers, *, presence: bool = False
) -> list[Reader]:
    """Put attributes of objects into a record (``presence``: whether they are None, no more)."""
    left = [x for x in objects if not pointers.attributes(x, names, presence=presence)]
    return [_reader(x, name, presence) for x in left for name in names]


def _reader(x: object, name: str, presence: bool) -> Reader:
    if presence:
        return lambda: (getattr(x, name) is None,)
    return lambda: (getattr(x, name),)
