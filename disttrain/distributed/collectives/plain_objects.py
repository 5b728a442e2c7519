"""Objects of classes as plain values, and back. No code of theirs is run.

Known kinds (dates, paths, dtypes, deques ...) are made from plain values by their constructors. An
object of a class of one's own is what it holds (where it is a kind of dict, list, set, tuple,
number or text) and its attributes; its class is found by its name among the modules that this
process has imported already. A class that says by itself how it is copied or saved is not plain
data.
"""

from __future__ import annotations

import copyreg
import datetime
import decimal
import fractions
import pathlib
import sys
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.tensor import Size
from ...core.types import dtypes
from ...core.types.device import device
from ...errors import CommError, DeviceError

_BASES: tuple[Any, ...] = (dict, list, tuple, set, frozenset, int, float, str, bytes)
_HEAP = 1 << 9  # flag of a type that a ``class`` statement has made
_HOOKS = ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__del__")
_FACTORIES = {"None": None, "int": int, "float": float, "list": list, "dict": dict, "set": set}


def _defaults(obj: defaultdict) -> list | None:
    names = [name for name, kind in _FACTORIES.items() if kind is obj.default_factory]
    return [names[0], dict(obj)] if names else None


def _device(name: str) -> device:
    try:
        return device(name)
    except DeviceError as error:  # of a name that no sender has written
        raise ValueError(str(error)) from None


# class -> what its objects are made of (None: they cannot be sent), and how they are made again
_KNOWN: dict[type, tuple[Callable, Callable]] = {
    OrderedDict: (lambda o: [list(o), list(o.values())], lambda v: OrderedDict(zip(*v))),
    Counter: (dict, Counter),
    deque: (lambda o: [list(o), o.maxlen], lambda v: deque(*v)),
    defaultdict: (_defaults, lambda v: defaultdict(_FACTORIES[v[0]], v[1])),
    slice: (lambda o: [o.start, o.stop, o.step], lambda v: slice(*v)),
    range: (lambda o: [o.start, o.stop, o.step], lambda v: range(*v)),
    Size: (list, Size),
    device: (str, _device),
    dtypes.dtype: (lambda o: o.name, dtypes.as_dtype),
    np.dtype: (lambda o: dtypes.of(o).name, lambda v: dtypes.as_dtype(v).np),
    datetime.timedelta: (
        lambda o: [o.days, o.seconds, o.microseconds],
        lambda v: datetime.timedelta(*v),
    ),
    datetime.datetime: (datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    datetime.date: (datetime.date.isoformat, datetime.date.fromisoformat),
    datetime.time: (datetime.time.isoformat, datetime.time.fromisoformat),
    decimal.Decimal: (str, decimal.Decimal),
    fractions.Fraction: (str, fractions.Fraction),
    uuid.UUID: (str, uuid.UUID),
    pathlib.PosixPath: (str, pathlib.PosixPath),
    pathlib.PurePosixPath: (str, pathlib.PurePosixPath),
}
_NAMES = {kind: kind.__name__ for kind in _KNOWN} | {np.dtype: "numpy.dtype"}
_MAKE = {_NAMES[kind]: make for kind, (_, make) in _KNOWN.items()}


def known(obj: object) -> tuple[str, Any] | None:
    """The name of a known kind and what ``obj`` is made of; None for other kinds."""
    kind = np.dtype if isinstance(obj, np.dtype) else obj.__class__
    if kind not in _KNOWN:
        return None
    inner = _KNOWN[kind][0](obj)
    return None if inner is None else (_NAMES[kind], inner)


def make_known(name: str, inner: object) -> Any:
    """The object of a known kind."""
    if name not in _MAKE:
        raise ValueError(f"no kind {name!r}")
    return _MAKE[name](inner)


def is_plain(kind: type) -> bool:
    """Whether its objects are what they hold and their attributes, and nothing more."""
    own = [c for c in kind.__mro__ if c is not object and c not in _BASES]
    if issubclass(kind, (type, BaseException)) or not all(c.__flags__ & _HEAP for c in own):
        return False
    return not any(hook in vars(c) for c in own for hook in _HOOKS)


def held(obj: object) -> Any:
    """What an object holds as a kind of container, number or text; None where it is none."""
    return next((base(obj) for base in _BASES if isinstance(obj, base)), None)


def attributes(obj: object) -> dict[str, Any]:
    """The attributes of an object of a plain class."""
    found = dict(getattr(obj, "__dict__", {}))
    for name in copyreg._slotnames(obj.__class__):  # type: ignore[attr-defined]
        if hasattr(obj, name):
            found[name] = getattr(obj, name)
    return found


def name_of(kind: type) -> str | None:
    """``module:name``, by which other processes find the class; None where it is not found so."""
    name = f"{kind.__module__}:{kind.__qualname__}"
    return name if _find(name) is kind else None


def _find(name: str) -> Any:
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) else None


def find_class(name: str) -> type:
    """The class of a name, which some module imported here has."""
    found = _find(name)
    if found is None:
        raise CommError(
            f"object collective: an object of the class {name.replace(':', '.')} was received, "
            "which this process does not know. Import its module on every rank"
        )
    return found


def make(kind: type, inner: Any, state: dict) -> Any:
    """The object of a plain class that holds ``inner`` and has the attributes ``state``."""
    if not is_plain(kind) or type(state) is not dict:
        raise ValueError(f"{kind.__name__} is not a class of plain data")
    base: Any = next((b for b in _BASES if issubclass(kind, b)), object)
    if base in (object, dict, list, set):
        made = base.__new__(kind)
        if base is dict:
            dict.update(made, inner)
        elif base is list:
            list.extend(made, inner)
        elif base is set:
            set.update(made, inner)
    else:
        made = base.__new__(kind, inner)
    for name, value in state.items():
        object.__setattr__(made, name, value)
    return made
