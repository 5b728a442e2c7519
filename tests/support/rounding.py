"""How far apart two ways to compute the same may end: by the size of what is summed and the depth
of the program, not by what one machine happened to give.

Every addition rounds its partial sum, of size S, by at most u S (u: half the distance from 1 to the
next number), up or down as it comes. Behind a result stand as many roundings, one after the other,
as a sum has terms times the depth: how many such sums feed each other. Errors without a bias grow
as the root of their number (N. Higham, T. Mary, "A New Approach to Probabilistic Rounding Error
Analysis", 2019), and two orders, ranks or BLAS kernels are apart by the root of twice that. For
terms of about 1, 24 rows and depth 6, that is 1e-14.

AdamW divides by the root of what gradients squared are on average, plus epsilon. Where a gradient
is zero by its nature (a bias in front of BatchNorm, the bias of attention's keys), it is rounding
errors alone that are divided by 1e-8 there: ``Steps`` says, per parameter, what becomes of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

_DEVIATIONS = 4  # that a result may be off


@dataclass(frozen=True)
class Sums:
    """A program. ``terms``: of its longest sum (rows of a batch, with the places of an image or a
    text); ``depth``: layers, there and back, times steps."""

    terms: int
    depth: int

    def apart(self, size: float = 1.0, kind: Any = np.float64) -> float:
        """The most that two results may be apart, where partial sums are of ``size``."""
        exact = not np.issubdtype(kind, np.inexact)
        unit = 0.0 if exact else float(np.finfo(kind).eps) / 2
        return _DEVIATIONS * math.sqrt(2 * self.terms * self.depth) * unit * size

    def equal(self, got: Any, wanted: Any, more: Any = 0.0, err_msg: str = "") -> None:
        """Both are the same number, or array, but for rounding; ``more``: what an optimizer has
        made of it, of a number's shape or the array's. What is summed is taken to be of size 1, or
        as large as the result."""
        got, wanted = np.asarray(got), np.asarray(wanted)
        size = max(1.0, float(np.abs(wanted).max(initial=0.0)))
        most = self.apart(size, np.result_type(got, wanted)) + more
        loosest = float(np.max(most, initial=0.0))
        np.testing.assert_allclose(got, wanted, rtol=0, atol=loosest, err_msg=err_msg)
        apart = np.abs(got - wanted)
        assert (apart <= most).all(), f"{err_msg} apart by {apart}, needed is at most {most}"


class Steps:
    """What AdamW does to rounding errors of gradients, seen from its steps in one process."""

    def __init__(self, optimizer: Any) -> None:
        """Made before the first step."""
        (self._group,) = optimizer.param_groups
        self._squares: dict[Any, list[np.ndarray]] = {p: [] for p in self._group["params"]}
        optimizer.register_step_pre_hook(self._note)

    def _note(self, *args: Any) -> None:
        for p, squares in self._squares.items():
            if p.grad is not None:
                squares.append(p.grad.numpy() ** 2)

    def more(self, sums: Sums, params: Iterable[Any]) -> list[Any]:
        """For each parameter, how much further it may be. ``sums``: of one step. What is summed is
        taken to be as large as the largest gradient, since all flow through each other."""
        seen = [g.max(initial=0.0) for each in self._squares.values() for g in each]
        error = sums.apart(math.sqrt(max(seen, default=0.0)))
        return [self._moved(self._squares.get(p, []), error) for p in params]

    def _moved(self, squares: list[np.ndarray], error: float) -> Any:
        """A step goes lr m / (sqrt(v) + eps): an error of the gradient is in m and in sqrt(v)."""
        lr, eps, total = self._group["lr"], self._group["eps"], 0.0
        for t in range(1, len(squares) + 1):
            total = total + 2 * lr * error / (np.sqrt(sum(squares[:t]) / t) + eps)
        return total
