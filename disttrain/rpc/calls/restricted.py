"""Building values of which others may name only some parts: what pickle can do beyond that, it
does not.

Pickle calls what it is given a name of, and changes what it has found: in C without asking. Here
data is made by functions that make nothing else, and what has a name stays as it is. This is
slower, and used only where ``callable_modules`` is set.
"""

from __future__ import annotations

import pickle
import struct
import sys
import types
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from ...errors import UnknownName
from .allowed import PLAIN, check_allowed, check_home

_MAIN = "__main__"
_SPAWNED_MAIN = "__mp_main__"  # what multiprocessing calls the program in processes it starts
_NAMED = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType)


def module_of(name: str) -> str:
    """What the module of that name on another worker is called here."""
    return _MAIN if name == _SPAWNED_MAIN and name not in sys.modules else name


def _type_of(value: object) -> type:
    """``type`` of one argument: of three it makes classes, which may say that they are others."""
    return type(value)


def _no_array(*args: bytes | str | tuple) -> Any:
    """``numpy.ndarray``, which makes objects of any bytes; arrays are sent as ``_empty`` ones that
    are filled."""
    raise UnknownName(
        "rpc: numpy.ndarray may not be called by other workers where callable_modules is set"
    )


def _empty(kind: Callable[..., Any], shape: tuple, code: bytes) -> np.ndarray:
    return np.ndarray((0,), np.int8)


_INSTEAD: dict[tuple[str, str], Callable[..., Any]] = {
    ("builtins", "type"): _type_of,
    ("numpy", "ndarray"): _no_array,
    ("numpy._core.multiarray", "_reconstruct"): _empty,
}


class CarefulUnpickler(pickle._Unpickler):  # type: ignore[name-defined,misc]
    """``find``: what finds the few names that are not in modules, or None for all others."""

    def __init__(
        self, file: Any, allowed: Collection[str], find: Callable[[str, str], Any]
    ) -> None:
        super().__init__(file)
        self._allowed, self._find = allowed, find

    def load(self) -> Any:
        try:
            return super().load()
        except (EOFError, IndexError, KeyError, struct.error) as error:
            raise pickle.UnpicklingError(
                f"rpc: a message that is no pickle: {type(error).__name__}: {error}"
            ) from error

    def find_class(self, module: str, name: str) -> Any:
        found = self._find(module, name) or _INSTEAD.get((module, name))
        if found is not None:
            return found
        module = module_of(module)
        check_allowed(module, name, self._allowed)
        found = super().find_class(module, name)
        if name not in PLAIN.get(module, ()):
            check_home(module, name, found, self._allowed)
        return found

    def load_build(self) -> None:
        built = self.stack[-2]  # type: ignore[attr-defined]
        if isinstance(built, _NAMED):
            raise UnknownName(
                f"rpc: {built!r} may not be changed by other workers where callable_modules is set"
            )
        super().load_build()  # type: ignore[misc]

    dispatch = {**pickle._Unpickler.dispatch, pickle.BUILD[0]: load_build}  # type: ignore
