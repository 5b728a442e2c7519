"""Boxes of tensors: which parts of stored chunks fill the chunks that are asked for.

Pure: offsets and sizes in, reads out. Any number of ranks, any way of splitting, before and after:
all that matters is where two boxes meet.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Box = tuple[tuple[int, ...], tuple[int, ...]]  # offsets, sizes
_FEW = 64  # boxes that are compared pair by pair


@dataclass(frozen=True)
class Meeting:
    """Where the wanted box ``wanted`` and the stored box ``stored`` meet (numbers in their lists):
    a box of ``sizes``, at these offsets within the one and within the other."""

    wanted: int
    stored: int
    in_wanted: tuple[int, ...]
    in_stored: tuple[int, ...]
    sizes: tuple[int, ...]


def meetings(wanted: Sequence[Box], stored: Sequence[Box]) -> list[Meeting]:
    """Every place where a wanted and a stored box meet. What several stored boxes hold is read
    from each; a well-formed checkpoint has no such place."""
    out = []
    for w, (w_at, w_size) in enumerate(wanted):
        for s in _near(w_at, w_size, stored):
            s_at, s_size = stored[s]
            low = tuple(map(max, w_at, s_at))
            high = tuple(min(a + n, b + m) for a, n, b, m in zip(w_at, w_size, s_at, s_size))
            sizes = tuple(h - x for x, h in zip(low, high))
            if all(n > 0 for n in sizes):
                out.append(Meeting(w, s, _less(low, w_at), _less(low, s_at), sizes))
    return out


def _less(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    return tuple(x - y for x, y in zip(a, b))


def _near(at: Sequence[int], size: Sequence[int], boxes: Sequence[Box]) -> Sequence[int]:
    """Numbers of the boxes that may meet this one."""
    if len(boxes) <= _FEW or not at:
        return range(len(boxes))
    begin = np.array([b[0] for b in boxes])
    end = begin + np.array([b[1] for b in boxes])
    meets = (begin < np.add(at, size)) & (end > np.asarray(at))
    return np.flatnonzero(meets.all(axis=1)).tolist()


def volume(box: Box) -> int:
    """How many elements a box has."""
    return math.prod(box[1])


def fault(shape: Sequence[int], boxes: Sequence[Box]) -> str:
    """Why ``boxes`` do not make up a tensor of ``shape``: one lies outside, two overlap, or some
    element is in none. Empty where they do."""
    for at, size in boxes:
        outside = any(a < 0 or n < 0 or a + n > d for a, n, d in zip(at, size, shape))
        if len(at) != len(shape) or len(size) != len(shape) or outside:
            return f"the piece at {list(at)} of {list(size)} lies outside the shape {list(shape)}"
    full = [(k, box) for k, box in enumerate(boxes) if volume(box)]
    for k, box in full:
        for other in _near(*box, boxes):
            if other > k and meetings([box], [boxes[other]]):
                return f"the pieces at {list(box[0])} and {list(boxes[other][0])} overlap"
    have, need = sum(volume(box) for _, box in full), math.prod(shape)
    if have != need:
        return f"its pieces have {have} of {need} elements"
    return ""


def runs(shape: Sequence[int], at: Sequence[int], sizes: Sequence[int]) -> tuple[int, np.ndarray]:
    """The box at ``at`` of ``sizes`` in an array of ``shape`` (C order) as runs of neighbours: the
    elements in each run, and where the runs begin."""
    inner, d = 1, len(shape)
    while d:
        d -= 1
        inner *= sizes[d]
        if sizes[d] != shape[d]:
            break
    strides = [math.prod(shape[k + 1 :]) for k in range(len(shape))]
    start = sum(a * s for a, s in zip(at, strides))
    begins = np.array([start], np.int64)
    for k in range(d):
        begins = (begins[:, None] + np.arange(sizes[k], dtype=np.int64) * strides[k]).reshape(-1)
    return inner, begins
