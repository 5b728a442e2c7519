"""What Python keeps, as it was before a symbolic run: that is a second run, of which nothing may
stay.

A program that a capture stands for changes nothing of it, as far as its guards can tell; but it may
write what is there already (``self.length = len(x)``), and a symbolic run would write a symbol.
"""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from ..guards.holders import ABSENT, CELL, DICT, FACT, MISSING, SEQUENCE, Holder
from ..guards.readers import members, values

_OF_CLASS = types.GetSetDescriptorType, types.MemberDescriptorType


class Kept:
    """What ``holders`` hold: afterwards they hold it again. ``changed``: which of them meant
    something else before that."""

    def __init__(self, holders: Iterable[Holder]) -> None:
        self.then = [(h, h.read()) for h in holders]
        self.changed: str | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        for h, then in self.then:
            now = h.read()
            if len(now) == len(then) and all(map(_is, now, then)):
                continue
            self.changed = self.changed or h.change(now)
            _put_back(h, then)


def containers(args: Any, where: str = "an argument") -> Iterator[Holder]:
    """Holders of the lists and dicts of a call, which a symbolic run is given in another form."""
    inside: Any = ()
    if isinstance(args, dict):
        yield Holder(DICT, args, where)
        inside = args.values()
    elif isinstance(args, (list, deque)):
        yield Holder(SEQUENCE, args, where)
        inside = args
    elif isinstance(args, tuple):
        inside = args
    for x in inside:
        yield from containers(x, where)


def _is(a: object, b: object) -> bool:
    return a is b


def _put_back(h: Holder, then: tuple) -> None:
    thing = h.thing
    if h.kind == CELL:
        if then[0] is MISSING:
            del thing.cell_contents
        else:
            thing.cell_contents = then[0]
    elif h.kind == SEQUENCE:
        cls = deque if isinstance(thing, deque) else list
        cls.clear(thing)
        cls.extend(thing, then)
    elif h.kind == FACT:
        _put_back_fact(h.reader, thing, then)
    elif h.kind == DICT:
        half = len(then) // 2
        _put_into(thing, dict(zip(then[:half], then[half:], strict=True)), set(thing))
    elif h.kind != ABSENT:  # (what is there now has a name elsewhere, or none that is read)
        count = len(then) - len(h.names)
        named = dict(zip(h.names, then[count:], strict=True))
        _put_into(thing, named, set(thing).difference(then[:count]) if count else set())


def _put_into(space: Any, named: dict, others: set) -> None:
    """Entries as they were, without ``others`` that were not there."""
    if isinstance(space, types.MappingProxyType):  # of a class
        owners = [v.__objclass__ for v in space.values() if isinstance(v, _OF_CLASS)]
        for name, value in named.items() if owners else ():
            if space.get(name, MISSING) is not value:
                setattr(owners[0], name, value)
        return
    for name, value in named.items():
        if value is MISSING:
            dict.pop(space, name, None)
        elif dict.get(space, name, MISSING) is not value:
            space[name] = value
    for name in others.difference(named):
        dict.pop(space, name, None)


def _put_back_fact(reader: Any, thing: Any, then: tuple) -> None:
    """What is told of slots and sets; the rest is no content."""
    kind = reader.func if isinstance(reader, functools.partial) else None
    if kind is members:
        thing.clear()
        thing.update(then)
    elif kind is values:
        x, names = reader.args
        for name, value in zip(names, then, strict=True):
            if value is MISSING:
                if hasattr(x, name):
                    delattr(x, name)
            elif getattr(x, name, MISSING) is not value:
                setattr(x, name, value)


__all__ = ["Kept", "containers"]
