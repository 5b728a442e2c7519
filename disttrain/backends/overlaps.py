"""Which arrays of the host share memory. Knows arrays only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

_EFFORT: Any = 10_000  # how hard numpy may try to prove that two views do not overlap
_PAIRS = 64  # groups beyond this size are taken as shared without looking at every pair


def overlapping(arrays: Mapping[Any, np.ndarray]) -> list[list[Any]]:
    """The keys of ``arrays`` that share elements, in groups of two or more."""
    return [part for group in _touching(arrays) for part in _sharing(group, arrays)]


def _touching(arrays: Mapping[Any, np.ndarray]) -> list[list[Any]]:
    """Keys of arrays whose ranges of memory touch, in groups of two or more."""
    order = {key: i for i, key in enumerate(arrays)}
    groups: list[list[Any]] = []
    reach = -1
    ranges = ((*byte_bounds(a), order[key], key) for key, a in arrays.items() if a.size)
    for low, high, _, key in sorted(ranges):
        if low >= reach:
            groups.append([])
        groups[-1].append(key)
        reach = max(reach, high)
    return [sorted(group, key=order.__getitem__) for group in groups if len(group) > 1]


def _sharing(group: list[Any], arrays: Mapping[Any, np.ndarray]) -> list[list[Any]]:
    """``group`` split where ranges touch but no element is shared (columns of a matrix)."""
    if len(group) > _PAIRS:
        return [group]
    parts: list[list[Any]] = []
    for key in group:
        touching = [p for p in parts if any(_share(arrays[key], arrays[o]) for o in p)]
        joined = [other for part in touching for other in part]
        parts = [p for p in parts if p not in touching] + [[*joined, key]]
    return [part for part in parts if len(part) > 1]


def _share(a: np.ndarray, b: np.ndarray) -> bool:
    try:
        return np.shares_memory(a, b, max_work=_EFFORT)
    except np.exceptions.TooHardError:
        return True
