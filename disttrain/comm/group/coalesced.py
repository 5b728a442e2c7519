"""Several arrays in one collective: laid one behind the other, and taken apart again.

Knows arrays and the verbs of a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..calls.reduce_ops import ReduceOp
from ..calls.work import Work

_LINEAR = ("SUM", "AVG")  # which a complex array may take as pairs of numbers


def all_reduce(verb: Any, arrays: Sequence[np.ndarray], op: ReduceOp) -> list[Work]:
    """Reduce all ``arrays`` in place, those of one type together. ``verb``: the group's."""
    works = []
    for same in _by_type(arrays, pairs=op.name in _LINEAR):
        flat = np.concatenate([_row(arrays[i], op.name in _LINEAR) for i in same])
        work = verb(flat, op, async_op=True)
        works.append(work.then(_apart(flat, [arrays[i] for i in same])))
    return works


def all_gather(
    verb: Any, outs: Sequence[Sequence[np.ndarray]], arrays: Sequence[np.ndarray]
) -> list[Work]:
    """``outs[r][i]`` becomes rank r's ``arrays[i]``."""
    works = []
    for same in _by_type(arrays):
        flat = np.concatenate([arrays[i].ravel() for i in same])
        rows = np.empty_like(flat, shape=len(outs) * flat.size)
        parts = [rows[r * flat.size : (r + 1) * flat.size] for r in range(len(outs))]
        work = verb(parts, flat, async_op=True)
        targets = [outs[r][i] for r in range(len(outs)) for i in same]
        works.append(work.then(_apart(rows, targets)))
    return works


def _row(array: np.ndarray, pairs: bool) -> np.ndarray:
    flat = array.ravel()
    return flat.view(flat.real.dtype) if pairs and flat.dtype.kind == "c" else flat


def _by_type(arrays: Sequence[np.ndarray], pairs: bool = False) -> list[list[int]]:
    """The places of arrays that can travel together, in their order."""
    found: dict[np.dtype, list[int]] = {}
    for i, array in enumerate(arrays):
        found.setdefault(_row(array[:0] if array.ndim else array, pairs).dtype, []).append(i)
    return list(found.values())


def _apart(flat: np.ndarray, targets: Sequence[np.ndarray]) -> Any:
    """What copies the parts of ``flat`` to where they belong."""

    def copy(_: list | np.ndarray) -> None:
        start = 0
        for target in targets:
            count = target.size * target.dtype.itemsize // flat.dtype.itemsize
            part = flat[start : start + count].view(target.dtype)
            target[...] = part.reshape(target.shape)
            start += count

    return copy
