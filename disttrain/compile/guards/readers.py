"""What some holders read: a tuple of objects each, the same ones as long as nothing changed."""

from __future__ import annotations

import gc
import types
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import numpy as np

from ...core.tensor import Tensor
from .holders import MISSING
from .kinds import is_ours


def function_parts(f: types.FunctionType) -> tuple:
    return f.__code__, f.__defaults__, f.__kwdefaults__


def calls(kind: Any) -> tuple:
    return kind.forward, kind.__call__


class Classes:
    """The classes of objects, and their dicts: both can be replaced."""

    def __init__(self, objects: list) -> None:
        self.objects = objects
        self.with_dicts = [x for x in objects if type(getattr(x, "__dict__", None)) is dict]

    def __call__(self) -> tuple:
        return (*map(type, self.objects), *map(vars, self.with_dicts))


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


class Answer:
    """What a function tells: the same object as long as it is equal, nothing where it raises."""

    def __init__(self, ask: Callable[[], Any]) -> None:
        self.ask = ask
        self.answer = self._read()

    def _read(self) -> Any:
        try:
            return self.ask()
        except Exception:  # what it looked at is gone
            return MISSING

    def __call__(self) -> tuple:
        now = self._read()
        if type(now) is not type(self.answer) or now != self.answer:
            self.answer = now
        return (self.answer,)


class Tried:
    """Which attributes beyond a Tensor's own tensors have; each name is tried once on each.
    (Without a look at their dicts, which would slow them down for ever.)"""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        self._found: dict[int, tuple[int, list]] = {}  # by id: how many were tried, and what it has

    def learn(self, names: set[str]) -> None:
        """Add names to those that are tried."""
        new = sorted(names - self._names.keys() - {"array"})
        self._names.update((n, None) for n in new if not hasattr(Tensor, n))

    def on(self, t: Tensor) -> list[tuple[str, Any]]:
        """The attributes of ``t`` under those names."""
        at, found = self._found.get(id(t), (0, []))
        names: Iterable[str] = islice(self._names, at, None)
        if type(t) is not Tensor and is_ours(type(t)):  # what a class of ours has stays as it is
            names = (n for n in names if not hasattr(type(t), n))
        new = [(n, getattr(t, n, MISSING)) for n in names]
        found += [(n, v) for n, v in new if v is not MISSING]
        self._found[id(t)] = len(self._names), found
        return found


def members(x: set) -> tuple:
    return tuple(sorted(x, key=lambda v: (type(v).__name__, v if isinstance(v, str) else hash(v))))


def values(x: object, names: tuple) -> tuple:
    return tuple(getattr(x, name, MISSING) for name in names)


def cached(x: object) -> tuple:
    """What an ``lru_cache`` refers to, its results among it, in an order of its own."""
    parts = gc.get_referents(x)
    inside = [v for d in parts if type(d) is dict for v in d.values()]
    return tuple(sorted((p for p in (*parts, *inside) if type(p) is not dict), key=id))
