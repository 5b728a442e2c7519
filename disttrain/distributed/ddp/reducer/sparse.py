"""Tables with sparse gradients (``nn.Embedding(sparse=True)``): buckets average dense ones; which
rows the sparse average has, ranks tell each other at the end of a backward.

Knows groups and leaves; of the reducer, its attributes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .... import nn
from ....comm.group.group import ProcessGroup
from ....core.backward.engine import on_finish
from ....core.tensor import Tensor
from ....nn.functional.rows import asked_rows, only_rows, rows_of


def sparse_tables(module: nn.Module, params: Sequence[Tensor]) -> list[int]:
    """Which of ``params`` are weights of embeddings whose gradients are to be sparse."""
    found = {
        id(m.weight)
        for m in module.modules()
        if isinstance(m, nn.Embedding | nn.EmbeddingBag) and m.sparse
    }
    return [i for i, p in enumerate(params) if id(p) in found]


class Tables:
    """Those among the parameters of reducer ``r`` at ``indices``."""

    def __init__(self, r: Any, indices: Sequence[int]) -> None:
        self.r = r
        self.asked = {i: asked_rows(r.params[i]) for i in indices}
        for asked in self.asked.values():
            asked.awaited = True
        self.before: dict[int, list[np.ndarray]] = {}  # rows of the gradients that were there
        self.settles = False

    def begin(self, syncing: bool) -> None:
        """A gradient has come. Where it is averaged in the end, it is the first."""
        if syncing:
            self.settles = False
            self.before = {i: rows_of(self.r.params[i]._grad) for i in self.asked}
        elif self.asked and not self.settles:
            self.settles = True
            on_finish(self._settle, self._settle)

    def _settle(self) -> None:
        """The end of a backward that is not averaged, or that broke."""
        self.settles = False
        for i, asked in self.asked.items():
            p, rows = self.r.params[i], [rows for rows, _ in asked.take()]
            if rows and p._grad is not None:
                p._grad = only_rows(p._grad, [*rows, *rows_of(p._grad)])

    def finish(self) -> None:
        """The averages are there: make them sparse."""
        r = self.r
        asked = {i: [rows for rows, _ in a.take()] for i, a in self.asked.items()}
        mine = [np.unique(np.concatenate([_NONE, *rows, *self.before.get(i, ())]))
                for i, rows in asked.items()]  # fmt: skip
        self.before = {}
        idle = () if r.used is None else [i for i in r.unused if not r.used[i]]
        for i, rows in zip(self.asked, common_rows(r.group, mine), strict=True):
            p = r.params[i]
            if i not in idle and p._grad is not None:
                p._grad = only_rows(p._grad, [rows])

    def shadow(self) -> None:
        """``finish`` of the others, for a rank that has no more input."""
        common_rows(self.r.group, [_NONE for _ in self.asked])


_NONE = np.zeros(0, np.int64)


def common_rows(group: ProcessGroup, mine: Sequence[np.ndarray]) -> list[np.ndarray]:
    """For each table, all rows that some rank has: ``mine`` are this rank's, one array a table.
    Every rank of ``group`` calls it."""
    if group.size == 1 or not mine:
        return list(mine)
    counts = np.empty(group.size * len(mine), np.int64)
    group.all_gather_single(counts, np.array([rows.size for rows in mine], np.int64))
    of_rank = counts.reshape(group.size, len(mine))
    theirs = [np.empty(n, np.int64) for n in of_rank.sum(1)]
    group.all_gather(theirs, np.concatenate([_NONE, *mine]))
    cut = [np.split(raw, np.cumsum(sizes)[:-1]) for raw, sizes in zip(theirs, of_rank, strict=True)]
    return [np.unique(np.concatenate(rows)) for rows in zip(*cut, strict=True)]
