"""What some holders read: a tuple of objects each, the same ones as long as nothing changed."""

from __future__ import annotations

import gc
import types
from typing import Any

import numpy as np

from .holders import MISSING


def function_parts(f: types.FunctionType) -> tuple:
    return f.__code__, f.__defaults__, f.__kwdefaults__


def calls(kind: Any) -> tuple:
    return kind.forward, kind.__call__


class Classes:
    """The classes of objects, which can be replaced."""

    def __init__(self, objects: list) -> None:
        self.objects = objects

    def __call__(self) -> tuple:
        return tuple(map(type, self.objects))


class ArrayParts:
    """The content of a numpy array: the same object as long as it is equal."""

    def __init__(self, x: np.ndarray) -> None:
        self.x = x
        self.parts = self._read()

    def _read(self) -> tuple:
        return (self.x.shape, str(self.x.dtype), self.x.tobytes())

    def __call__(self) -> tuple:
        now = self._read()
        if now != self.parts:
            self.parts = now
        return self.parts


def members(x: set) -> tuple:
    return tuple(sorted(x, key=lambda v: (type(v).__name__, v if isinstance(v, str) else hash(v))))


def values(x: object, names: tuple) -> tuple:
    return tuple(getattr(x, name, MISSING) for name in names)


def results_kept(x: object) -> tuple:
    """What an ``lru_cache`` refers to, its results among it, in an order of its own."""
    parts = gc.get_referents(x)
    inside = [v for d in parts if type(d) is dict for v in d.values()]
    return tuple(sorted((p for p in (*parts, *inside) if type(p) is not dict), key=id))
