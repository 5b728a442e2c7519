"""Which arrays share memory: what is stored once, and who is a view of it.

Tied weights are stored once under their first name. Views that overlap are stored as one piece: the
largest of them where it covers the rest, otherwise the memory that they span. Knows arrays only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from ..backends.overlaps import overlapping
from .layout import C128, KIND_NAMES, KINDS


@dataclass(frozen=True)
class View:
    """A tensor as part of a stored one: ``offset`` and ``strides`` in bytes."""

    of: str
    code: str
    shape: tuple[int, ...]
    offset: int
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """``stored``: the arrays to write, by name, in order. ``views``: how the others lie in them."""

    stored: dict[str, np.ndarray]
    views: dict[str, View]


def plan(arrays: dict[str, np.ndarray]) -> Plan:
    """What to write for ``arrays`` (little-endian, of types in ``KINDS``)."""
    order = {name: i for i, name in enumerate(arrays)}
    shared = [sorted(part, key=order.__getitem__) for part in overlapping(arrays)]
    place = {name: part for part in shared for name in part}
    stored: dict[str, np.ndarray] = {}
    views: dict[str, View] = {}
    for name, array in arrays.items():  # keeps the given order
        if name not in place:
            stored[name] = array
        elif name not in stored and name not in views:
            _store(place[name], arrays, stored, views)
    for name, array in stored.items():
        if array.dtype == KINDS[C128]:
            views[name] = View(name, C128, array.shape, 0, np.empty(array.shape, "V16").strides)
    return Plan(stored, views)


def _store(
    group: list[str],
    arrays: dict[str, np.ndarray],
    stored: dict[str, np.ndarray],
    views: dict[str, View],
) -> None:
    """Store two or more arrays that share memory: one of them, and the others as views of it."""
    bounds = {n: byte_bounds(arrays[n]) for n in group}
    low, high = min(b[0] for b in bounds.values()), max(b[1] for b in bounds.values())
    whole = [n for n in group if bounds[n] == (low, high) and arrays[n].flags.c_contiguous]
    if whole:
        owner = whole[0]
        stored[owner] = arrays[owner]
    else:
        owner = unique(f"{group[0]}~storage", arrays)
        stored[owner] = _span(low, high - low, arrays[group[0]])
    for name in group:
        if name != owner:
            a = arrays[name]
            address = a.__array_interface__["data"][0]
            views[name] = View(owner, KIND_NAMES[a.dtype], a.shape, address - low, a.strides)


def _span(address: int, num_bytes: int, keep: np.ndarray) -> np.ndarray:
    """The bytes from ``address`` on. ``keep`` holds their memory."""

    class Memory:
        __array_interface__ = {
            "version": 3, "typestr": "|u1", "shape": (num_bytes,), "data": (address, True),
        }  # fmt: skip
        owner = keep

    return np.asarray(Memory())


def unique(name: str, taken: Any) -> str:
    """``name``, or with a number behind it when it is taken."""
    found, k = name, 1
    while found in taken:
        k += 1
        found = f"{name}~{k}"
    return found
