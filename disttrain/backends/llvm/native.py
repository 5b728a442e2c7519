"""Compiled kernels as Python built-in functions.

``build(kernel, access)`` finds the kernel's object code in the cache or compiles it, loads it, and
makes two built-in functions of it (``wrap.py`` says what they do). A call from Python costs what a
call of any C built-in costs, about 50 ns, where ctypes would take a microsecond.

The table of addresses handed to the code is made once per process. What is compiled serves every
rank of the process, and goes on working in forked children.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import platform
import struct
import sys
import sysconfig
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from .. import host, threads
from ..lang.interpret import storage
from ..lang.kernel import Kernel
from . import many, wrap
from .cached import kept
from .emit import EXTERNAL, Target
from .immortal import immortal
from .ir import module
from .objfile import ObjectError
from .partition import SPLIT_WORK
from .wrap import (
    DTYPES,
    FIRST_DTYPE,
    FLOAT,
    FUNCTIONS,
    GIL_FROM,
    INCREF,
    NDARRAY,
    NONE,
    RESTORE,
    SAVE,
    SPLIT_FROM,
)

GIL_ELEMENTS = 65536  # runs over more elements than this let other threads run meanwhile
_FASTCALL, _NOARGS = 0x0080, 0x0004
_SOURCES = (
    "llvm/emit.py",
    "lang/kernel.py",
    "llvm/ir.py",
    "llvm/many.py",
    "llvm/native.py",
    "llvm/vecmath.py",
    "llvm/wrap.py",
)


class _MethodDef(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


@dataclass(frozen=True, slots=True)
class Built:
    """A kernel ready to run."""

    fast: Callable[..., Any]
    general: Callable[[np.ndarray], None]


class Unavailable(Exception):
    """No code can be generated here; the text says why."""


def _function(definition: _MethodDef, self: np.ndarray) -> Callable[..., Any]:
    return _new_function(ctypes.byref(definition), self, None)  # type: ignore[no-any-return]


_new_function = ctypes.PyDLL(None).PyCFunction_NewEx
_new_function.restype = ctypes.py_object
_new_function.argtypes = (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)


def build(kernel: Kernel, access: dict[str, str], target: Target | None = None) -> Built:
    """Compile or find ``kernel`` for these column strides (see ``llvm.py``); ``target`` if not for
    this processor's best instructions.

    Raises ``Unavailable`` where that cannot be done on this machine.
    """
    process = _process()
    for p in kernel.arrays:
        process.know_dtype(p.dtype)
    places = process.load(kernel, access, target or process.target)
    fast, general = (
        process.function(f"{kernel.name}_{name}", places[name]) for name in ("fast", "general")
    )
    return Built(fast, general)


def build_many(kernel: Kernel, access: dict[str, str]) -> Callable[..., Any]:
    """``many`` of ``kernel`` (see ``many.py``). Raises as ``build``."""
    process = _process()
    for p in kernel.arrays:
        process.know_dtype(p.dtype)
    places = process.load(kernel, access, process.target, many)
    return process.function(f"{kernel.name}_many", places["many"])


def why_unavailable() -> str:
    """Why kernels cannot be compiled here; empty where they can."""
    try:
        _process()
    except Unavailable as e:
        return str(e)
    return "" if host.llvmlite_origin() else "llvmlite is not installed; pip install llvmlite"


class _Process:
    """What generated code must know of this process and processor."""

    def __init__(self) -> None:
        self.cpu = host.cpu()
        reason = _unsupported()
        if reason:
            raise Unavailable(reason)
        self.vector_library = host.libmvec()
        self.c_library = ctypes.CDLL(None)
        self.math_library = ctypes.CDLL("libm.so.6")
        self.target = self._target()
        self.table = immortal(self._table())
        threads.tell(self._know_threads)
        self.fingerprint = self._fingerprint()

    def _target(self) -> Target:
        bits = host.vector_bits(self.cpu.features)
        return Target(bits, tuple(n for n in EXTERNAL if self._vector_address(n, bits)))

    def _vector_address(self, name: str, bits: int) -> int:
        lanes = bits // (32 if name.endswith("f") and name != "erf" else 64)
        letter = {512: "e", 256: "d", 128: "b"}[bits]
        inputs = "vv" if name.startswith("pow") else "v"
        return _address(self.vector_library, f"_ZGV{letter}N{lanes}{inputs}_{name}")

    def _table(self) -> np.ndarray:
        table = np.zeros(FUNCTIONS + 2 * len(EXTERNAL), np.int64)
        api = ctypes.pythonapi
        table[NDARRAY], table[FLOAT], table[NONE] = id(np.ndarray), id(float), id(None)
        table[INCREF] = _address(api, "Py_IncRef")
        table[SAVE] = _address(api, "PyEval_SaveThread")
        table[RESTORE] = _address(api, "PyEval_RestoreThread")
        table[GIL_FROM] = GIL_ELEMENTS
        for k, name in enumerate(EXTERNAL):
            table[FUNCTIONS + k] = self._vector_address(name, self.target.vector_bits)
            table[FUNCTIONS + len(EXTERNAL) + k] = _address(self.math_library, name)
        return table

    def _know_threads(self, count: int) -> None:
        self.table[SPLIT_FROM] = SPLIT_WORK if count > 1 else np.iinfo(np.int64).max

    def know_dtype(self, name: str) -> None:
        at = FIRST_DTYPE + DTYPES.index(name)
        if not self.table[at]:
            self.table[at] = id(immortal(storage(name)))

    def _fingerprint(self) -> str:
        """Everything but the kernel that its object code depends on."""
        here, digest = Path(__file__).parent.parent, hashlib.sha256()
        for name in _SOURCES:
            digest.update((here / name).read_bytes())
        python = f"{sys.implementation.cache_tag} numpy {np.__version__.split('.')[0]}"
        return f"{digest.hexdigest()}\n{python}"

    def load(
        self, kernel: Kernel, access: dict[str, str], target: Target, how: ModuleType = wrap
    ) -> dict[str, int]:
        text = f"{kernel}\n{sorted(access.items())}\n{target}\n{self.fingerprint}\n{how.__name__}"
        try:
            return kept(text, lambda: module(kernel, access, target, how.wrappers), self.resolve)
        except ImportError as e:
            raise Unavailable(f"llvmlite is not installed ({e}); pip install llvmlite") from None
        except ObjectError as e:
            raise Unavailable(str(e)) from None
        except RuntimeError as e:
            raise Unavailable(
                f"LLVM refused the code of kernel {kernel.name}; is llvmlite at least 0.45? ({e})"
            ) from None

    def function(self, name: str, address: int) -> Callable[..., Any]:
        """A built-in function, whose definition CPython reads again when it is given back."""
        return _function(immortal(_MethodDef(name.encode(), address, _FASTCALL, None)), self.table)

    def resolve(self, name: str) -> int:
        """The address of a function of the C library that LLVM decided to call."""
        found = _address(self.math_library, name) or _address(self.c_library, name)
        if not found:
            raise ObjectError(f"the C library has no function {name}")
        return found


@functools.cache
def definition(name: str, address: int) -> _MethodDef:
    """That of a built-in function without arguments, for ``built_in``."""
    return immortal(_MethodDef(name.encode(), address, _NOARGS, None))


def built_in(defined: _MethodDef, self: np.ndarray) -> Callable[[], Any]:
    """A built-in function without arguments, to which ``self`` is given."""
    return _function(defined, self)


def address_in_python(name: str) -> int:
    """The address of a function of CPython."""
    return _address(ctypes.pythonapi, name)


_making = threading.Lock()
_make_process = functools.cache(_Process)


def _process() -> _Process:
    """The one of this process. Ranks that are threads may ask for it at the same moment."""
    with _making:
        return _make_process()


def _address(library: ctypes.CDLL | None, name: str) -> int:
    """The address of a function, 0 where the library has none of that name."""
    try:
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
    except AttributeError:
        return 0


def _unsupported() -> str:
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return f"kernels are generated for Linux on x86-64, this is {platform.platform()}"
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "kernels read the objects of CPython with the GIL; this is another Python"
    return "" if _layout_is_known() else "numpy's arrays have a layout that is not known here"


def _layout_is_known() -> bool:
    """Look at an array and a float where ``wrap.py`` expects their fields."""
    array, number = np.ones((3, 5), np.float32), 2.5
    fields = struct.unpack("<QQQi4xQQQQi", ctypes.string_at(id(array), 68))
    expected = {
        1: id(np.ndarray),
        2: array.__array_interface__["data"][0],
        3: 2,
        7: id(np.dtype(np.float32)),
        8: array.flags.num & 0xFFFFFFFF,
    }
    if any(fields[k] != value for k, value in expected.items()):
        return False
    dims = struct.unpack("<qq", ctypes.string_at(fields[4], 16))
    value = struct.unpack("<d", ctypes.string_at(id(number) + 16, 8))[0]
    return dims == (3, 5) and value == number


__all__ = [
    "Built",
    "Unavailable",
    "address_in_python",
    "build",
    "built_in",
    "definition",
    "why_unavailable",
]
