"""The weights of the virtual shards of a step: by what the sum of their gradients is divided.

Every shard's weight stands at its own place, so that their sum is the same on any number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import AutogradError, ConfigError
from .shards import VirtualShards

__outward__ = ()  # whose reducer takes them is watched there


def checked(where: str, count: float, loss: str) -> tuple[float, float]:
    """The weight of a loss that is the "mean" or the "sum" over ``count`` samples, and the factor
    of its gradients."""
    count = float(count)
    if not 0 <= count < float("inf") or loss not in ("mean", "sum"):
        raise ConfigError(
            f"{where}: count={count}, loss={loss!r} was given; needed is a number of samples that "
            "is not negative, and 'mean' or 'sum'"
        )
    return count, 0.0 if not count else count if loss == "mean" else 1.0


class ShardWeights:
    """``weight``: (count, factor of the gradients) of the backward to come, None without weight."""

    def __init__(self, shards: VirtualShards, join: Callable) -> None:
        """``join(array)`` sums over all ranks, in place."""
        self.shards, self.join = shards, join
        self.weight: tuple[float, float] | None = None
        self.told = np.zeros((2, shards.count))  # weights, and who has said one

    def set_weight(self, weight: tuple[float, float] | None) -> None:
        """Of the backwards to come."""
        self.weight = weight

    def begin(self) -> None:
        """The backward of the current shard begins."""
        if self.weight is not None:
            self.told[:, self.shards.current] = self.weight[0], 1

    def scaled(self, array: np.ndarray) -> np.ndarray:
        """A gradient of the current shard, as it counts: with weight 0 not at all."""
        if self.weight is None:
            return array
        count, factor = self.weight
        return array * array.dtype.type(factor) if count else np.zeros_like(array)

    def divisor(self) -> float:
        """At the end of a step, on every rank: what makes a mean of the sum over all shards; 0
        where none counts. Raises on all of them where some shards have a weight and some none."""
        told, self.told = self.told, np.zeros_like(self.told)
        self.join(told)
        counts, said = told
        if not said.any():
            return float(self.shards.count)
        if not said.all():
            raise AutogradError(
                f"deterministic='global': virtual shards {_listed(said == 1)} of step "
                f"{self.shards.step} had a weight and {_listed(said == 0)} had none; put the "
                "backwards of all shards of a step into weighted(...) blocks, on every rank, or "
                "none of them"
            )
        return float(np.add.reduce(counts))


def mean(total: np.ndarray, divisor: float) -> Any:
    """``total / divisor``, in place; 0 where nothing counts."""
    if not divisor:
        total.fill(0)
        return total
    return np.divide(total, total.dtype.type(divisor), out=total)


def _listed(which: np.ndarray) -> str:
    return ", ".join(map(str, np.flatnonzero(which)))
