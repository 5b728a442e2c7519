"""How much each micro-batch of a step counts: by its samples or tokens.

The last stage alone knows. It starts the backward of a micro-batch with its share of the batch, and
what it counts travels with the gradients, so that stages with replicas or shards weigh their means
by it. Pure data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ...errors import ConfigError

WEIGHT = "weight"  # beside the gradients, in what a stage gives back


class Count(NamedTuple):
    """A micro-batch stands for ``samples`` of ``total``."""

    samples: float
    total: float

    def weight(self, counts: bool = True) -> tuple[float, float]:
        """(weight, factor of the gradients) for replicas and shards; ``counts``: whether this is
        the backward whose weight is added up."""
        if not self.samples:
            return 0.0, 0.0
        return self.samples if counts else 0.0, self.total


class Counts:
    """What a program has said: numbers per micro-batch, or what counts in a target; and whether a
    loss is the "mean" or the "sum" over them."""

    def __init__(self, given: Any, loss: str) -> None:
        if loss not in ("mean", "sum"):
            raise ConfigError(f"pipeline: weight(loss={loss!r}); needed is 'mean' or 'sum'")
        self.given, self.mean = given, loss == "mean"

    def of(self, targets: Sequence[Any] | None, num_micro: int) -> list[Count]:
        """Per micro-batch of a step."""
        counts = [float(n) for n in self._numbers(targets, num_micro)]
        if len(counts) != num_micro or not all(0 <= n < float("inf") for n in counts):
            raise ConfigError(
                f"pipeline: weight({counts}) for {num_micro} micro-batches; needed is a number of "
                "samples, not negative, for each of them"
            )
        return [Count(n, sum(counts)) for n in counts]

    def _numbers(self, targets: Sequence[Any] | None, num_micro: int) -> Iterable[Any]:
        if isinstance(self.given, Callable):  # type: ignore[arg-type]
            if targets is None:
                raise ConfigError(
                    "pipeline: weight(function) without a target; the function is asked how much "
                    "the target of each micro-batch counts: pass target=, or give the numbers"
                )
            return [self.given(target) for target in targets]
        if hasattr(self.given, "tolist"):
            return _listed(self.given.tolist())
        if self.given is None or not isinstance(self.given, Iterable):
            raise ConfigError(
                f"pipeline: weight({self.given!r}) on the rank of the last stage; needed is a "
                f"number of samples for each of {num_micro} micro-batches, or a function of a "
                "target that gives it"
            )
        return self.given

    def seed(self, count: Count) -> float:
        """What the gradient of a loss starts with."""
        if not count.samples:
            return 0.0
        return (count.samples if self.mean else 1.0) / count.total


def _listed(value: Any) -> list:
    return value if isinstance(value, list) else [value]


def beside(grads: tuple, count: Count | None) -> Any:
    """What a stage gives back: ``grads``, with what they count."""
    return grads if count is None else {"grads": grads, WEIGHT: tuple(count)}


def apart(given: Any) -> tuple[tuple, Count | None]:
    """The gradients of ``beside``, and what they count."""
    if isinstance(given, dict):
        return given["grads"], Count(*given[WEIGHT])
    return given, None
