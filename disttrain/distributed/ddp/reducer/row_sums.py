"""Gradients of embeddings touch few rows: send those rows with their numbers, where that is less.

In place of an all_reduce, ranks tell how many rows of theirs are not zero, and then send these
rows, or, where they would be too many, reduce all of them after all. Rows are added up in rank
order, as an all_reduce does, so the result is the same. Knows groups and arrays, and which modules
have such gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .... import nn
from ....comm.group.group import ProcessGroup
from ....core.tensor import Tensor

MIN_BYTES = 4 << 20  # smaller gradients are not worth a second message
LONGEST_PAUSE = 64


def candidates(module: nn.Module, params: Sequence[Tensor]) -> list[int]:
    """The weights of embeddings among ``params`` that are large and that no other module uses."""
    owners: dict[int, list[nn.Module]] = {}
    for m in module.modules():
        for p in m.parameters(recurse=False):
            owners.setdefault(id(p), []).append(m)

    def fits(p: Tensor) -> bool:
        users = owners.get(id(p), ())
        large = p.array.ndim == 2 and p.array.nbytes >= MIN_BYTES
        return large and bool(users) and all(isinstance(m, nn.Embedding) for m in users)

    return [i for i, p in enumerate(params) if fits(p)]


def is_less(counts: Sequence[int], num_rows: int) -> bool:
    """Whether sending ``counts[r]`` rows of rank r costs less than reducing ``num_rows``.

    An all_reduce moves each row twice; the rows of all ranks go to every rank once.
    """
    return sum(counts) <= num_rows // 2


def touched_rows(grad: np.ndarray) -> np.ndarray:
    """The numbers of the rows of ``grad`` (2-D, contiguous) in which some bit is set."""
    raw = grad.view(np.uint8)
    for word in (np.uint64, np.uint32, np.uint16):
        if grad.shape[1] * grad.itemsize % np.dtype(word).itemsize == 0:
            raw = grad.view(word)
            break
    return np.flatnonzero(np.bitwise_or.reduce(raw, axis=1)).astype(np.int32)


class RowSums:
    """The sums over ranks of one matrix, step after step. All ranks make the same decisions, since
    they know the same numbers: when rows were not worth it, they are not counted for a while."""

    def __init__(self, group: ProcessGroup) -> None:
        self.group = group
        self.pause = self.length = 0
        self.sent_rows = 0  # of this rank, in all steps: what was saved can be told from it

    def start(self, grad: np.ndarray) -> Any:
        """Begin to sum ``grad`` (2-D, contiguous) in place; something to wait for."""
        if self.pause:
            self.pause -= 1
            return self.group.all_reduce(grad, async_op=True)
        rows = touched_rows(grad)
        counts = np.empty(self.group.size, np.int64)
        mine = np.array([rows.size], np.int64)
        work = self.group.all_gather_single(counts, mine, async_op=True)
        return _Counting(self, grad, rows, counts, work)

    def exchange(self, grad: np.ndarray, rows: np.ndarray, counts: list[int]) -> None:
        """Every rank knows ``counts``."""
        if not is_less(counts, len(grad)):
            self.length = min(max(2 * self.length, 1), LONGEST_PAUSE)
            self.pause = self.length
            self.group.all_reduce(grad)
            return
        self.length = 0
        self.sent_rows += rows.size
        width = grad.shape[1] * grad.itemsize
        mine = np.empty(rows.size * (4 + width), np.uint8)
        mine[: 4 * rows.size] = rows.view(np.uint8)
        mine[4 * rows.size :] = grad[rows].view(np.uint8).reshape(-1)
        grad[rows] = 0
        theirs = [np.empty(n * (4 + width), np.uint8) for n in counts]
        self.group.all_gather(theirs, mine)
        for n, raw in zip(counts, theirs, strict=True):
            values = raw[4 * n :].view(grad.dtype).reshape(n, grad.shape[1])
            grad[raw[: 4 * n].view(np.int32)] += values


class _Counting:
    """Waits for the numbers of rows; the rows follow then."""

    def __init__(
        self, sums: RowSums, grad: np.ndarray, rows: np.ndarray, counts: np.ndarray, work: Any
    ) -> None:
        self.sums, self.grad, self.rows, self.counts, self.work = sums, grad, rows, counts, work

    def wait(self) -> None:
        """Block until the sum is there."""
        self.work.wait()
        self.sums.exchange(self.grad, self.rows, self.counts.tolist())
