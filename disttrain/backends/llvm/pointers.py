"""Whether objects of Python still hold the very objects that they held, in one native pass.

A ``Pointers`` takes down what is in dicts, lists, cells and attributes, by identity, and makes one
built-in function of it, without arguments, that says whether all of it is still so. What it has
taken down lies flat in an int64 ndarray, the function's ``self``: a head (addresses of what the
code needs), then records of four words and more, each beginning with its kind:

    WORD   address, offset, expected        the word at ``address + offset``
    VALUE  object, offset, expected         the value of an attribute, in an array of the object's
    DICT   dict, tag, n, (key, value) * n   all entries in their order; a value of 0 may be any
    NAMES  dict, tag, n, (key, value) * n   these entries alone; a value of 0: there is none
    LIST   list, 0, n, item * n             all items

What is expected of an attribute may be SOME (neither missing nor None) or NOTHING (either).

Dicts are read by functions of CPython; where it counts their versions (``ma_version_tag``, PEP 509,
up to Python 3.12), a dict whose version is the same is not read at all. Attributes of an object
whose dict nobody has asked for lie in an array of values, at the same place in all objects of a
class that have them so (BEFORE, TAGGED and INSIDE say where that array is, by the version of
Python); of others the dict is taken down, where that can be. Where no native code can be made,
there is none, and the caller compares by himself.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .cached import kept
from .native import Unavailable, address_in_python, built_in, definition, why_unavailable
from .objfile import ObjectError

END, WORD, BEFORE, TAGGED, INSIDE, DICT, NAMES, LIST = range(8)
SOME, NOTHING = -1, -2
_HEAD = 7  # words of the head: True, False, None, Py_IncRef, PyDict_Next, PyDict_GetItem, tags?
_TYPE, _CELL, _TAG = 8, 16, 24  # offsets in PyObject, PyCellObject and PyDictObject
_OWN_DICT = -24  # where an object has its dict, in front of itself
_UNREAD = -1  # no dict has this version
_word = ctypes.c_int64.from_address
_byte = ctypes.c_uint8.from_address
_MISSING = object()
# The flags of classes whose objects keep values so: Py_TPFLAGS_MANAGED_DICT, and INLINE_VALUES.
_MANAGED = 1 << 4
_NEEDED = _MANAGED | (1 << 2 if sys.version_info >= (3, 13) else 0)

_IR = f"""
define ptr @intact(ptr %self, ptr %unused) {{
entry:
  %cursor = alloca ptr
  %pos = alloca i64
  %key = alloca ptr
  %value = alloca ptr
  %data = getelementptr i8, ptr %self, i64 16
  %desc = load ptr, ptr %data
  %none.at = getelementptr i64, ptr %desc, i64 2
  %none = load i64, ptr %none.at
  %next.at = getelementptr i64, ptr %desc, i64 4
  %dict_next = load ptr, ptr %next.at
  %get.at = getelementptr i64, ptr %desc, i64 5
  %get_item = load ptr, ptr %get.at
  %tags.at = getelementptr i64, ptr %desc, i64 6
  %tags.word = load i64, ptr %tags.at
  %tags = icmp ne i64 %tags.word, 0
  %first = getelementptr i64, ptr %desc, i64 {_HEAD}
  store ptr %first, ptr %cursor
  br label %loop

loop:
  %at = load ptr, ptr %cursor
  %kind = load i64, ptr %at
  %a.at = getelementptr i64, ptr %at, i64 1
  %a = load ptr, ptr %a.at
  %b.at = getelementptr i64, ptr %at, i64 2
  %b = load i64, ptr %b.at
  %c.at = getelementptr i64, ptr %at, i64 3
  %c = load i64, ptr %c.at
  %body = getelementptr i64, ptr %at, i64 4
  switch i64 %kind, label %yes [ i64 {WORD}, label %word  i64 {BEFORE}, label %before
    i64 {TAGGED}, label %tagged  i64 {INSIDE}, label %inside  i64 {DICT}, label %dict
    i64 {NAMES}, label %names  i64 {LIST}, label %list ]

before:
  %values.at = getelementptr i8, ptr %a, i64 -32
  %values = load ptr, ptr %values.at
  %no_values = icmp eq ptr %values, null
  br i1 %no_values, label %no, label %word
tagged:
  %either.at = getelementptr i8, ptr %a, i64 -24
  %either = load i64, ptr %either.at
  %bit = and i64 %either, 1
  %is_dict = icmp eq i64 %bit, 0
  %untagged = add i64 %either, 1
  %values.2 = inttoptr i64 %untagged to ptr
  br i1 %is_dict, label %no, label %word
inside:
  %valid.at = getelementptr i8, ptr %a, i64 3
  %valid = load i8, ptr %valid.at
  %is_valid = icmp eq i8 %valid, 1
  br i1 %is_valid, label %word, label %no
word:
  %base = phi ptr [ %a, %loop ], [ %values, %before ], [ %values.2, %tagged ], [ %a, %inside ]
  %place = getelementptr i8, ptr %base, i64 %b
  %found = load i64, ptr %place
  store ptr %body, ptr %cursor
  %same = icmp eq i64 %found, %c
  br i1 %same, label %loop, label %other
other:
  %is_null = icmp eq i64 %found, 0
  %is_none = icmp eq i64 %found, %none
  %nothing = or i1 %is_null, %is_none
  %wanted = select i1 %nothing, i64 {NOTHING}, i64 {SOME}
  %fits = icmp eq i64 %wanted, %c
  br i1 %fits, label %loop, label %no

dict:
  %d.tag.at = getelementptr i8, ptr %a, i64 {_TAG}
  %d.tag = load i64, ptr %d.tag.at
  %d.same = icmp eq i64 %d.tag, %b
  %d.skip = and i1 %d.same, %tags
  %d.words = mul i64 %c, 2
  %d.end = getelementptr i64, ptr %body, i64 %d.words
  store i64 0, ptr %pos
  br i1 %d.skip, label %unchanged, label %entries
entries:
  %e.at = phi ptr [ %body, %dict ], [ %e.next, %entry_value ]
  %e.more = call i32 %dict_next(ptr %a, ptr %pos, ptr %key, ptr %value)
  %e.any = icmp ne i32 %e.more, 0
  %e.full = icmp eq ptr %e.at, %d.end
  %e.stop = xor i1 %e.any, true
  %e.both = and i1 %e.stop, %e.full
  br i1 %e.both, label %unchanged, label %entry_there
entry_there:
  %e.wrong = or i1 %e.stop, %e.full
  br i1 %e.wrong, label %no, label %entry_key
entry_key:
  %e.key = load i64, ptr %key
  %e.key.then = load i64, ptr %e.at
  %e.key.same = icmp eq i64 %e.key, %e.key.then
  br i1 %e.key.same, label %entry_value, label %no
entry_value:
  %e.value.at = getelementptr i64, ptr %e.at, i64 1
  %e.value = load i64, ptr %value
  %e.value.then = load i64, ptr %e.value.at
  %e.next = getelementptr i64, ptr %e.at, i64 2
  %e.value.same = icmp eq i64 %e.value, %e.value.then
  %e.value.any = icmp eq i64 %e.value.then, 0
  %e.fits = or i1 %e.value.same, %e.value.any
  br i1 %e.fits, label %entries, label %no

names:
  %n.tag.at = getelementptr i8, ptr %a, i64 {_TAG}
  %n.tag = load i64, ptr %n.tag.at
  %n.same = icmp eq i64 %n.tag, %b
  %n.skip = and i1 %n.same, %tags
  %n.words = mul i64 %c, 2
  %n.end = getelementptr i64, ptr %body, i64 %n.words
  br i1 %n.skip, label %unchanged, label %each_name
each_name:
  %g.at = phi ptr [ %body, %names ], [ %g.next, %name ], [ %g.next, %other_value ]
  %g.done = icmp eq ptr %g.at, %n.end
  br i1 %g.done, label %unchanged, label %name
name:
  %g.key = load ptr, ptr %g.at
  %g.value.at = getelementptr i64, ptr %g.at, i64 1
  %g.then = load i64, ptr %g.value.at
  %g.found = call ptr %get_item(ptr %a, ptr %g.key)
  %g.now = ptrtoint ptr %g.found to i64
  %g.next = getelementptr i64, ptr %g.at, i64 2
  %g.same = icmp eq i64 %g.now, %g.then
  br i1 %g.same, label %each_name, label %other_value
other_value:
  %g.null = icmp eq i64 %g.now, 0
  %g.none = icmp eq i64 %g.now, %none
  %g.nothing = or i1 %g.null, %g.none
  %g.wanted = select i1 %g.nothing, i64 {NOTHING}, i64 {SOME}
  %g.fits = icmp eq i64 %g.wanted, %g.then
  br i1 %g.fits, label %each_name, label %no

unchanged:
  %u.tag = phi i64 [ %d.tag, %dict ], [ %d.tag, %entries ],
                   [ %n.tag, %names ], [ %n.tag, %each_name ]
  %u.end = phi ptr [ %d.end, %dict ], [ %d.end, %entries ],
                   [ %n.end, %names ], [ %n.end, %each_name ]
  store i64 %u.tag, ptr %b.at
  store ptr %u.end, ptr %cursor
  br label %loop

list:
  %l.size.at = getelementptr i8, ptr %a, i64 16
  %l.size = load i64, ptr %l.size.at
  %l.items.at = getelementptr i8, ptr %a, i64 24
  %l.items = load ptr, ptr %l.items.at
  %l.end = getelementptr i64, ptr %body, i64 %c
  store ptr %l.end, ptr %cursor
  %l.fits = icmp eq i64 %l.size, %c
  br i1 %l.fits, label %items, label %no
items:
  %i = phi i64 [ 0, %list ], [ %i.next, %item ]
  %i.more = icmp slt i64 %i, %c
  br i1 %i.more, label %item, label %loop
item:
  %i.at = getelementptr i64, ptr %l.items, i64 %i
  %i.now = load i64, ptr %i.at
  %i.then.at = getelementptr i64, ptr %body, i64 %i
  %i.then = load i64, ptr %i.then.at
  %i.next = add i64 %i, 1
  %i.same = icmp eq i64 %i.now, %i.then
  br i1 %i.same, label %items, label %no

yes:
  br label %give
no:
  br label %give
give:
  %which = phi i64 [ 0, %yes ], [ 1, %no ]
  %out.at = getelementptr i64, ptr %desc, i64 %which
  %out = load ptr, ptr %out.at
  %incref.at = getelementptr i64, ptr %desc, i64 3
  %incref = load ptr, ptr %incref.at
  call void %incref(ptr %out)
  ret ptr %out
}}
"""


class Pointers:
    """What is taken down. Each method says whether it could be; ``sealed`` gives the function.

    It keeps alive whatever it takes down: an address stands for an object as long as that lives.
    """

    def __init__(self) -> None:
        self._words: list[int] = []
        self._alive: list[Any] = []

    def _take(self, kind: int, thing: Any, second: int, third: int, rest: Iterable[Any]) -> None:
        self._alive.append(thing)
        self._words += (kind, id(thing), second, third)
        for x in rest:
            self._alive.append(x)
            self._words.append(0 if x is _MISSING else id(x))

    def type_of(self, x: object) -> None:
        """The class of ``x``."""
        self._word(x, _TYPE, type(x))

    def dict_of(self, x: Any) -> bool:
        """Which dict ``x`` has its attributes in."""
        d = x.__dict__
        known = _ways().known and type(x).__flags__ & _MANAGED
        if not known or _word(id(x) + _OWN_DICT).value != id(d):
            return False
        self._word(x, _OWN_DICT, d)
        return True

    def cell(self, cell: Any) -> None:
        """What is in a cell of a closure, which is filled."""
        self._word(cell, _CELL, cell.cell_contents)

    def _word(self, x: object, offset: int, expected: object) -> None:
        self._alive += (x, expected)
        self._words += (WORD, id(x), offset, id(expected))

    def attributes(self, x: Any, names: tuple[str, ...], *, presence: bool = False) -> bool:
        """What the object itself has under these names, where it has nothing else than None that
        would be its class's. ``presence``: only whether it has something there, or None."""
        expected, values = [], [getattr(x, name) for name in names]
        for value in values:
            expected.append(NOTHING if value is None else SOME if presence else id(value))
        self._alive += [x, *values] if not presence else [x]
        ways = [_ways().of(type(x), name) for name in names]
        if all(w is not None and w.fits(x, v) for w, v in zip(ways, values, strict=True)):
            for w, e in zip(ways, expected, strict=True):
                self._words += (w.kind, id(x) + w.ahead, w.offset, e)  # type: ignore[union-attr]
            return True
        return _ways().has_dict(x) and self._in_dict(x, names, values, expected)

    def _in_dict(self, x: Any, names: tuple[str, ...], values: list, expected: list[int]) -> bool:
        """The same where attributes are in a dict, which must stay the same one."""
        d = x.__dict__
        if any(d.get(name) is not v for name, v in zip(names, values, strict=True)):
            return False
        self._word(x, _OWN_DICT, d)
        self._words += (NAMES, id(d), _UNREAD, len(names))
        for name, e in zip(names, expected, strict=True):
            self._alive.append(name)
            self._words += (id(name), e)
        return True

    def mapping(self, d: dict, names: Iterable[str] | None = None) -> None:
        """All keys of a dict in their order, and the values: all, or those under ``names``."""
        wanted = None if names is None else set(names)
        entries = ((k, v if wanted is None or k in wanted else _MISSING) for k, v in dict.items(d))
        self._take(DICT, d, _UNREAD, dict.__len__(d), (x for pair in entries for x in pair))

    def names(self, d: dict, names: Iterable[str]) -> None:
        """What a dict has under these names, or that it has nothing there."""
        entries = [(n, dict.get(d, n, _MISSING)) for n in names]
        self._take(NAMES, d, _UNREAD, len(entries), (x for pair in entries for x in pair))

    def sequence(self, x: list) -> None:
        """The items of a list."""
        self._take(LIST, x, 0, list.__len__(x), list.__iter__(x))

    def sealed(self) -> Callable[[], bool]:
        """The function that says whether all of it is as it was. It keeps alive what is in it."""
        description = np.array([*_head(), *self._words, END, 0, 0, 0], np.int64).view(_Holding)
        description.alive = self._alive
        return built_in(_code(), description)


class _Holding(np.ndarray):
    """A description, with the objects whose addresses are in it."""

    alive: list[Any]


class _Way:
    """Where attributes of a name lie in objects of a class.

    Up to Python 3.12 an object has room for as many values as its class knew names when it was
    made, and then some, of which later objects have fewer: where one object has a place, all that
    have values have it. Later each object says how many it has room for.
    """

    def __init__(self, kind: int, ahead: int, offset: int) -> None:
        self.kind, self.ahead, self.offset = kind, ahead, offset

    def read(self, x: object) -> int | None:
        """The word there, 0 where nothing was set; None where ``x`` has no such place."""
        if self.kind == INSIDE:
            base = id(x) + self.ahead
            there = self.offset < 8 * (1 + _byte(base).value) and _byte(base + 3).value == 1
        else:
            base = _values(x)
            there = base != 0
        return _word(base + self.offset).value if there else None

    def fits(self, x: object, value: object) -> bool:
        """Whether ``value`` is what lies there in ``x``, or None with nothing there."""
        found = self.read(x)
        return found == id(value) or (found == 0 and value is None)


def _values(x: object) -> int:
    """The address of an object's values (up to Python 3.12), 0 where it has a dict instead."""
    if sys.version_info < (3, 12):
        return _word(id(x) - 32).value
    either = _word(id(x) - 24).value
    return either + 1 if either & 1 else 0


def _places(base: int) -> list[int]:
    """The numbers of those that are set among the values at ``base`` (up to Python 3.12): they
    stand before them in the order in which they were set."""
    return [_byte(base - 2 - k).value for k in range(1, _byte(base - 2).value + 1)]


class _Ways:
    """Where attributes lie, by class and name, found on an object of the class made for it."""

    def __init__(self) -> None:
        self._found: dict[tuple[type, str], _Way | None] = {}
        self.known = sys.version_info[:2] in ((3, 11), (3, 12), (3, 13), (3, 14))

    def of(self, kind: type, name: str) -> _Way | None:
        """The place, None where there is none that is known."""
        key = kind, name
        if key not in self._found:
            self._found[key] = self._search(kind, name) if self.known else None
        return self._found[key]

    def has_dict(self, x: object) -> bool:
        """Whether ``x`` has its attributes in a dict, as is known where."""
        if not self.known or sys.version_info >= (3, 13) or not type(x).__flags__ & _NEEDED:
            return False
        word = _word(id(x) + _OWN_DICT).value
        return bool(word) and not word & 1

    def _search(self, kind: type, name: str) -> _Way | None:
        if kind.__flags__ & _NEEDED != _NEEDED:
            return None
        try:
            trial: Any = object.__new__(kind)
            object.__setattr__(trial, name, _MISSING)
        except (TypeError, AttributeError):
            return None
        return next((w for w in _possible(trial) if w.read(trial) == id(_MISSING)), None)


def _possible(x: object) -> list[_Way]:
    """All places of attributes in ``x``."""
    if sys.version_info >= (3, 13):
        ahead = type(x).__basicsize__
        return [_Way(INSIDE, ahead, 8 * (1 + k)) for k in range(_byte(id(x) + ahead).value)]
    kind, base = BEFORE if sys.version_info < (3, 12) else TAGGED, _values(x)
    return [_Way(kind, 0, 8 * k) for k in (_places(base) if base else ())]


_ways = functools.cache(_Ways)


@functools.cache
def _head() -> tuple[int, ...]:
    calls = (address_in_python(n) for n in ("Py_IncRef", "PyDict_Next", "PyDict_GetItem"))
    return id(True), id(False), id(None), *calls, _has_tags()


def _has_tags() -> bool:
    """Whether dicts count their versions."""
    if sys.version_info >= (3, 13):
        return False
    d = {"a": 1}
    first = _word(id(d) + _TAG).value
    d["a"] = 2
    second = _word(id(d) + _TAG).value
    del d["a"]
    return first != second != _word(id(d) + _TAG).value


@functools.cache
def _code() -> Any:
    """The definition of the function. Raises ``Unavailable``."""
    why = why_unavailable()
    if why:
        raise Unavailable(why)
    try:
        return definition("intact", kept(_IR, lambda: _IR, _nothing)["intact"])
    except (ImportError, ObjectError, RuntimeError) as e:
        raise Unavailable(str(e)) from None


def _nothing(name: str) -> int:
    raise ObjectError(f"the code calls no function by name, and {name} is called")


__all__ = ["Pointers"]
