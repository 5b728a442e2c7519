"""A sum of terms that come one by one, joined as one balanced tree over all of them would.

The tree is the one of ``comm.reduce_ops``: neighbours first, the left branch the largest power of
two. So the sum of a power of two of neighbours may take their place in a reduction over ranks.
Knows numpy arrays; no ranks.
"""

from __future__ import annotations

import numpy as np


class TreeSum:
    """Terms by position, in rising order; a position that is left out counts as zero.

    Holds one partial sum per level of the tree: at most ``log2(count) + 1`` arrays.
    """

    def __init__(self) -> None:
        self._parts: list[tuple[int, int, np.ndarray]] = []  # (first position, how many, their sum)

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, position: int, term: np.ndarray) -> None:
        """Add the term of ``position``; a second one of the same position is added to the first.

        ``term`` stays the caller's: where it must be kept, it is copied.
        """
        if self._parts and self._parts[-1][:2] == (position, 1):
            np.add(self._parts[-1][2], term, out=self._parts[-1][2])
            return
        self._complete(position)
        if position % 2 and self._parts and self._parts[-1][:2] == (position - 1, 1):
            _, _, left = self._parts.pop()
            self._parts.append((position - 1, 2, np.add(left, term, out=left)))
        else:
            self._parts.append((position, 1, np.array(term)))

    def total(self) -> np.ndarray | None:
        """The sum of everything, which the caller owns; None when nothing was added."""
        parts, self._parts = self._parts, []
        if not parts:
            return None
        value = parts.pop()[2]
        while parts:
            left = parts.pop()[2]
            value = np.add(left, value, out=left)
        return value

    def _complete(self, end: int) -> None:
        """Join the subtrees that lie before position ``end``, where nothing more can come."""
        while self._parts:
            first, count, value = self._parts[-1]
            first -= first % (2 * count)
            if first + 2 * count > end:
                return
            self._parts.pop()
            if self._parts and self._parts[-1][0] == first:
                left = self._parts.pop()[2]
                value = np.add(left, value, out=left)
            self._parts.append((first, 2 * count, value))
