"""Sums of losses and right answers over samples and ranks, joined in one order.

A row belongs to a place (step and shard, or the number of a test batch), which depends on no number
of ranks. Rows of all ranks are put side by side and summed in the order of their places, so that
the sums have the same bits however the work was divided.
"""

from __future__ import annotations

import numpy as np

import disttrain as dt

_COLUMNS = 3  # the sum of the loss, right answers, all answers


class Tally:
    """Collects rows; ``together`` gives the sums over all ranks and begins anew.

    ``size``: ranks that bring rows. ``copies``: how many ranks bring each row alike.
    """

    def __init__(self, size: int = 1, copies: int = 1) -> None:
        self.size, self.copies = size, copies
        self.rows: dict[int, tuple[float, float, float]] = {}
        self.before = np.zeros((0, _COLUMNS))  # rows of all ranks, from the first place on
        self.earlier = np.zeros(_COLUMNS)  # sums of other rows, of another number of ranks

    def add(self, place: int, loss: float, right: float, answers: float) -> None:
        """``loss`` is a mean over ``answers``."""
        self.rows[place] = (loss * answers, right, answers)

    def together(self, first: int, count: int) -> np.ndarray:
        """The sums of the rows at ``count`` places from ``first`` on; every rank calls it."""
        table = self.table(first, count)
        earlier, self.earlier = self.earlier, np.zeros(_COLUMNS)
        self.rows, self.before = {}, self.before[:0]
        return np.add.reduce(table) / self.copies + earlier

    def table(self, first: int, count: int) -> np.ndarray:
        """Those rows themselves, ``copies`` times each; every rank calls it, and collects on."""
        table = np.zeros((count, _COLUMNS))
        for place, row in self.rows.items():
            table[place - first] = row
        if self.size * self.copies > 1:
            dt.distributed.all_reduce(dt.from_numpy(table))  # the others' are zeros: exact
        table[: len(self.before)] += self.before
        return table


def means(sums: np.ndarray) -> dict[str, float]:
    """Loss and accuracy per answer."""
    loss, right, answers = (float(v) for v in sums)
    count = max(answers, 1.0)
    return {"loss": loss / count, "accuracy": right / count}
