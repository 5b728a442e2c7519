"""Kinds of Python things, as far as a capture must tell them apart. Knows no graph."""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import functools
import os
import pathlib
import re
import sys
import sysconfig
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ...backends.device.platform import beneath
from ...core.gate import Primitive
from ...core.node import GraphNode, Output
from ...core.tensor import Size, Tensor
from ...core.types.device import device
from ...core.types.dtypes import dtype
from ..originals import original_code

Fn = TypeVar("Fn", bound=Callable[..., Any])
# Typed as the function itself: checkers take classes for unhashable arguments otherwise.
_cached: Callable[[Fn], Fn] = functools.lru_cache(maxsize=4096)  # type: ignore[assignment]

PLAIN = (bool, int, float, complex, str, bytes, type(None))

# Values that never change, and callables without state of their own.
_CONSTANT = (
    *PLAIN, type(Ellipsis), type(NotImplemented), range, np.dtype, np.generic, np.ufunc, dtype,
    device, Size, Primitive, GraphNode, Output, re.Pattern, datetime.date, datetime.time,
    datetime.timedelta, datetime.tzinfo, decimal.Decimal, fractions.Fraction, pathlib.PurePath,
    types.CodeType, types.MethodDescriptorType,
    types.WrapperDescriptorType, types.MethodWrapperType, types.ClassMethodDescriptorType,
    types.GetSetDescriptorType, types.MemberDescriptorType, types.GenericAlias, types.UnionType,
    type(np.dot), type(threading.Lock()), type(threading.RLock()),
)  # fmt: skip

_PACKAGE = str(pathlib.Path(__file__).parents[2]) + os.sep
_PYTHON = sysconfig.get_paths()["stdlib"] + os.sep
_SITE = os.path.dirname(os.path.dirname(np.__file__)) + os.sep
_SUPPORT = ("<frozen", *(_SITE + name + os.sep for name in ("numpy", "ml_dtypes", "llvmlite")))
_LIBRARY_NAMES = frozenset({*sys.stdlib_module_names, "numpy", "ml_dtypes", "llvmlite"})
OURS, LIBRARY, USER = 0, 1, 2


def _once_loaded(fn: Callable[[str], Any]) -> Callable[[str], Any]:
    """``fn`` of a module's name or file, which is kept once the module says all that it will say:
    a package may be loaded for the first time by the function that is watched."""
    kept = functools.cache(fn)

    @functools.wraps(fn)
    def ask(of: str) -> Any:
        return fn(of) if _is_loading(_module_of(of)) else kept(of)

    return ask


def _module_of(filename: str) -> str:
    """The name of a module of this package, of its file (or itself)."""
    if not filename.startswith(_PACKAGE):
        return filename
    inside = filename[len(_PACKAGE) :].removesuffix(".py").removesuffix(os.sep + "__init__")
    return f"disttrain.{inside.replace(os.sep, '.')}"


def _is_loading(module: str) -> bool:
    while module.startswith("disttrain."):
        spec = getattr(sys.modules.get(module), "__spec__", None)
        if getattr(spec, "_initializing", False):
            return True
        module = module.rpartition(".")[0]
    return False


@_once_loaded
def outward_part(module: str) -> tuple[str, str] | None:
    """What a package that keeps state of the world, and holds ``module``, says of itself: what it
    is called, and what may be done instead of using it in a graph. Such packages are watched as a
    user's program is; each says so by ``__outward__``, whose first part is a name. (An empty one is
    that of a module in such a package whose work beyond this rank is all effects.)"""
    while module.startswith("disttrain."):
        said = vars(sys.modules[module]).get("__outward__") if module in sys.modules else None
        if said is not None:
            return said or None
        module = module.rpartition(".")[0]
    return None


@_once_loaded
def file_kind(filename: str) -> int:
    """Whose code a file holds: this package's, the standard library's (and numpy's), the user's."""
    if filename.startswith(_PACKAGE):
        return USER if is_outward(filename) else OURS
    python = filename.startswith(_PYTHON) and "site-packages" not in filename
    return LIBRARY if python or filename.startswith(_SUPPORT) else USER


def own_modules() -> set[str]:
    """The names of the modules of the program itself: those that nobody installed."""
    files = {name: getattr(m, "__file__", None) for name, m in sys.modules.copy().items()}
    return {n for n, f in files.items() if f and file_kind(f) == USER and "site-packages" not in f}


def frame_kind(frame: types.FrameType) -> int:
    """Whose code runs in a frame. Generated code belongs to the module that it was made for."""
    filename = frame.f_code.co_filename
    if filename[:1] != "<" or filename.startswith("<frozen"):
        kind = file_kind(filename)
        if kind == USER and beneath(str(frame.f_globals.get("__name__", ""))):
            return LIBRARY
        return kind
    name = str(frame.f_globals.get("__name__", ""))
    if name.startswith("disttrain.") and outward_part(name) is None:
        return OURS
    made = name.startswith("namedtuple_") or filename == "<__array_function__ internals>"
    known = made or name.partition(".")[0] in _LIBRARY_NAMES or beneath(name)
    return LIBRARY if known else USER


def is_constant(x: object) -> bool:
    """Whether ``x`` never changes, so that its identity says all."""
    return _constant_kind(x.__class__)


@_cached
def _constant_kind(kind: type) -> bool:
    return kind in PLAIN or (issubclass(kind, _CONSTANT) and (is_library(kind) or is_ours(kind)))


def is_module(x: object) -> bool:
    """Whether ``x`` has parameters and submodules."""
    return hasattr(type(x), "named_modules") and hasattr(type(x), "named_parameters")


def is_optimizer(x: object) -> bool:
    """Whether ``x`` updates groups of parameters by planned rules."""
    return hasattr(type(x), "plan") and hasattr(type(x), "add_param_group")


def is_ours(kind: type) -> bool:
    """Whether a class is this package's own, and does not look at the world."""
    name = str(kind.__module__)
    return name.partition(".")[0] == "disttrain" and outward_part(name) is None


@_once_loaded
def is_outward(filename: str) -> bool:
    """Whether a file belongs to a part of this package that keeps state of the world."""
    if not filename.startswith(_PACKAGE):
        return False
    inside = filename[len(_PACKAGE) :].removesuffix(".py").replace(os.sep, ".")
    return outward_part(f"disttrain.{inside}") is not None


def is_library(kind: type) -> bool:
    """Whether a class comes with Python or numpy."""
    return str(kind.__module__).partition(".")[0] in _LIBRARY_NAMES


_FOREIGN_MEMBERS = (
    types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType,
)  # fmt: skip
_SPACES = (dict, types.MappingProxyType)
_OPEN_BASES = (
    object, dict, list, tuple, set, frozenset, str, int, float, bytes, collections.deque,
    collections.OrderedDict, collections.defaultdict, BaseException, types.SimpleNamespace,
    types.ModuleType, type, weakref.ref,
)  # fmt: skip


@_cached
def is_open(kind: type) -> bool:
    """Whether objects of a class keep all of their state where Python can see it."""
    return all(
        base in _OPEN_BASES or issubclass(base, BaseException) or not _in_c(base)
        for base in kind.__mro__
    )


def _in_c(kind: type) -> bool:
    return any(
        isinstance(member, _FOREIGN_MEMBERS) and name not in ("__dict__", "__weakref__")
        for name, member in vars(kind).items()
    )


@_cached
def slots_of(kind: type) -> tuple[str, ...]:
    """The names of all slots of a class."""
    return tuple(
        name
        for base in kind.__mro__
        for name, member in vars(base).items()
        if isinstance(member, types.MemberDescriptorType) and base not in _OPEN_BASES
    )


def space_of(x: object) -> Any:
    """The dict of the attributes that ``x`` itself has; None where it has none, whatever it answers
    who asks for any name (as what stands for a library of C functions does)."""
    try:
        space = object.__getattribute__(x, "__dict__")
    except AttributeError:
        return None
    return space if isinstance(space, _SPACES) else None


def is_operator(name: str, x: object) -> bool:
    """Methods that syntax calls: they need not be named."""
    if isinstance(x, types.ModuleType):
        return name == "__getattr__"
    special = name.startswith("__") and name.endswith("__")
    return special and isinstance(x, type) and isinstance(vars(x)[name], types.FunctionType)


def meant(x: Any) -> Any:
    """What ``x`` stands for for the time being (a tensor in its module, code of a function); else
    itself."""
    if type(x) is types.CodeType:
        return original_code(x)
    other = getattr(x, "stands_for", None) if isinstance(x, Tensor) else None
    return x if other is None else other


def same(a: Any, b: Any) -> bool:
    """Whether two values mean the same to every program: one object, or equal constants of one
    type (1, 1.0 and True differ, so do 0.0 and -0.0; nan is itself)."""
    if a is b:
        return True
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return meant(a) is meant(b)
    kind = type(a)
    if kind is not type(b):
        return False
    if kind is types.CodeType:
        return meant(a) is meant(b)
    if kind in (float, complex):
        return repr(a) == repr(b)
    if kind in PLAIN:
        return a == b
    if kind in (tuple, frozenset) or issubclass(kind, Size):
        return len(a) == len(b) and all(map(same, _ordered(a), _ordered(b)))
    if isinstance(a, np.generic):
        return a.tobytes() == b.tobytes()
    if kind is types.MethodType:
        return a.__self__ is b.__self__ and a.__func__ is b.__func__
    return isinstance(a, (np.dtype, dtype, device, range, datetime.date)) and bool(a == b)


def _ordered(x: object) -> Any:
    return sorted(x, key=repr) if isinstance(x, frozenset) else x


def shown(x: object) -> str:
    """A value in a message."""
    text = repr(x) if isinstance(x, (*PLAIN, tuple)) else f"<{type(x).__name__}>"
    return text if len(text) < 60 else f"{text[:56]} ..."


def shortly(x: object) -> str:
    """The text of anything, or its beginning."""
    text = str(x)
    return text if len(text) < 80 else f"{text[:76]} ..."
