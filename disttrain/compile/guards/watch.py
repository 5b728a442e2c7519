"""Watching one run: which code of the program runs, and what it asks the world.

Python calls a profile function for every call of Python code and of C functions. Code of the
program is noted (``reach`` follows its names); a C function whose result depends on more than its
arguments (clocks, files, random numbers, the environment), or that has an effect outside (printing)
means that a replay could not stand for the run.
"""

from __future__ import annotations

import builtins
import collections
import datetime
import decimal
import fractions
import functools
import gc
import os
import random
import re
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from ...ops.methods import item
from ..originals import original_code
from .code import Codes, preceding
from .kinds import LIBRARY, OURS, USER, frame_kind, is_outward, outward_part

_PURE_MODULES = frozenset(
    "math cmath _operator operator itertools _functools _collections _collections_abc _abc _struct "
    "_json _bisect _heapq _statistics _string unicodedata binascii zlib _weakref _sre _datetime "
    "_decimal _typing _stat _codecs _ast".split()
)
_PURE_SYS = frozenset("intern getsizeof _getframe exc_info getrecursionlimit is_finalizing".split())
_IMPURE = frozenset("open input print breakpoint __import__".split())
_LOOKUPS = frozenset("getattr setattr hasattr delattr".split())
_ALL_NAMES = frozenset("vars dir globals locals __reduce_ex__ __reduce__ __getstate__".split())
_NUMPY = os.path.dirname(np.__file__) + os.sep
_CLOCKS = frozenset("now today utcnow".split())
_PURE_TYPES: tuple[type, ...] = (
    str, bytes, bytearray, int, float, complex, tuple, list, dict, set, frozenset, range, slice,
    collections.deque, re.Pattern, re.Match, datetime.date, datetime.time, datetime.timedelta,
    datetime.tzinfo, decimal.Decimal, fractions.Fraction, types.MappingProxyType, property,
    types.FunctionType, types.MethodType, types.GeneratorType, types.CodeType, type(None),
    memoryview, type({}.keys()), type({}.values()), type({}.items()), np.ndarray, np.generic,
    np.dtype, np.ufunc, BaseException, types.FrameType, types.TracebackType, functools.partial,
)  # fmt: skip

_ITEM = item.__code__


class Watch:
    """Notes what runs while the ``with`` block lasts, on this thread.

    ``codes``: code of the program that ran, with its globals. ``refused``: the first thing that a
    replay could not repeat; ``outward``: the first part of this package among them, which explains
    what is refused inside of it. ``everything``: attributes were looked up by names made on the
    way.
    """

    def __init__(self, on_number: Callable[[object], None]) -> None:
        self.on_number = on_number  # what Python gets by ``item()``
        self.codes: Codes = {}
        self._kinds: dict[int, tuple[types.CodeType, int]] = {}  # by id of code
        self.refused: str | None = None
        self.outward: str | None = None
        self.everything = False
        self._stream = _numpy_state()
        self._thread = threading.get_ident()
        self._collecting = False  # the garbage collector runs: what it calls is not the program's

    @staticmethod
    def possible() -> bool:
        """Whether nobody else is profiling this thread."""
        return sys.getprofile() is None

    def __enter__(self) -> Watch:
        gc.callbacks.append(self._collector)
        sys.setprofile(self._event)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.setprofile(None)
        gc.callbacks.remove(self._collector)
        if self._stream != _numpy_state():
            self._refuse("it draws random numbers of numpy's")

    def _refuse(self, why: str) -> None:
        self.refused = self.refused or why

    def _collector(self, phase: str, info: dict) -> None:
        if threading.get_ident() == self._thread:
            self._collecting = phase == "start"

    def _event(self, frame: types.FrameType, event: str, arg: Any) -> None:
        if self._collecting:
            return
        code = frame.f_code
        known = self._kinds.get(id(code))
        if known is None:
            known = self._kinds[id(code)] = code, frame_kind(frame)
        kind = known[1]
        if kind == OURS:
            if event == "return" and code is _ITEM:
                self.on_number(arg)
            return
        if event == "call":
            code = original_code(code)
            key = id(code), id(frame.f_globals)
            if key not in self.codes and not _for_us(frame):
                self.codes[key] = code, frame.f_globals
                if is_outward(code.co_filename):
                    self.outward = self.outward or _used(frame)
        elif event == "c_call" and self.refused is None:
            self._called(frame, arg)

    def _called(self, frame: types.FrameType, fn: Callable) -> None:
        name, owner = getattr(fn, "__name__", ""), getattr(fn, "__self__", None)
        if owner is builtins and name in _LOOKUPS:
            if not frame.f_code.co_filename.startswith(_NUMPY):  # (it looks at arrays)
                self.everything |= not _spelled(frame) and not _for_us(frame)
        elif name in _ALL_NAMES:
            self.everything |= not _for_us(frame)
        elif not _pure(name, owner, getattr(fn, "__module__", None)) and not _for_us(frame):
            what = f"{getattr(owner, '__name__', type(owner).__name__)}.{name}"
            what = name if owner is builtins else what
            self._refuse(
                f"it calls {what}() at {_site(frame)}, which a replay would not call again"
            )


def _used(frame: types.FrameType) -> str:
    """What a part of this package that keeps state of the world is called, and where it is used."""
    part = str(frame.f_globals.get("__name__"))
    what, advice = outward_part(part) or (part, "")
    site = _site(frame.f_back or frame)
    return f"it uses {what} at {site}, which a replay would not do again{advice}"


def _pure(name: str, owner: object, module: str | None) -> bool:
    """Whether a C function's result depends on its arguments alone, and nothing else notices."""
    if isinstance(owner, types.ModuleType):
        place = owner.__name__
        if owner is builtins:
            return name not in _IMPURE
        if place == "sys":
            return name in _PURE_SYS
        return place in _PURE_MODULES or (
            place.partition(".")[0] in ("numpy", "ml_dtypes") and ".random" not in place
        )
    if isinstance(owner, type):
        return name not in _CLOCKS and not issubclass(owner, random.Random)
    if owner is None:
        return module is not None and module.partition(".")[0] in ("builtins", "numpy", "ml_dtypes")
    return isinstance(owner, _PURE_TYPES) or _plain_object(name)


def _plain_object(name: str) -> bool:
    """Methods that every object inherits."""
    return hasattr(object, name)


def _spelled(frame: types.FrameType) -> bool:
    """Whether the name that ``getattr`` and its like look up stands in the code as a text."""
    call, *before = preceding(frame.f_code).get(frame.f_lasti, [None])
    back = (call.arg or 0) - 2 if call is not None else -1  # a default may follow the name
    return (
        0 <= back < len(before) - 1
        and all(ins.opname.startswith("LOAD_") for ins in before[: back + 2])
        and "ATTR" not in "".join(ins.opname for ins in before[:back])
        and before[back].opname == "LOAD_CONST"
    )


def _for_us(frame: Any) -> bool:
    """Whether a frame works for this package (as parts of the standard library do), or for an
    import, which happens once: not for the program itself."""
    kind, code = None, frame.f_code
    if code.co_qualname == "__getattr__" and is_outward(code.co_filename):
        return True  # a package of ours that loads what it is asked for
    while frame is not None:
        here = frame_kind(frame)
        if here == LIBRARY and "importlib" in frame.f_code.co_filename:
            return True
        if kind is None and here != LIBRARY:
            kind = here
        if here == OURS:
            break
        frame = frame.f_back
    return kind == OURS


def _site(frame: Any) -> str:
    while frame.f_back is not None and (
        frame_kind(frame) != USER or is_outward(frame.f_code.co_filename)
    ):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"


def _numpy_state() -> Any:
    """Where numpy's own stream of random numbers is, if it was ever loaded."""
    legacy = sys.modules.get("numpy.random.mtrand")
    if legacy is None:
        return None
    state = legacy._rand.get_state()
    return state[1].tobytes(), state[2:]
