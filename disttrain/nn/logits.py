"""Losses of labels and logits, one for each example or element."""

from __future__ import annotations

from ..core.tensor import Tensor
from ..errors import DimError, ShapeError
from ..ops import api as ops
from . import functional as nn


def softmax_cross_entropy(labels: Tensor, logits: Tensor, axis: int = -1) -> Tensor:
    """The cross entropy of classes' probabilities ``labels``."""
    return -ops.sum(labels * ops.log_softmax(logits, dim=axis), dim=axis)


def sparse_softmax_cross_entropy(labels: Tensor, logits: Tensor) -> Tensor:
    """The cross entropy of classes that ``labels`` are the numbers of."""
    count, rows = logits.shape[-1], labels.reshape(-1).tolist()
    for label in rows:
        if not 0 <= label < count:
            raise DimError(
                f"Received a label value of {label} which is outside the valid range of "
                f"[0, {count}).  Label values: {' '.join(map(str, rows))}"
            )
    found = ops.log_softmax(logits, dim=-1).gather(-1, labels.long().unsqueeze(-1))
    return -found.squeeze(-1)


def sigmoid_cross_entropy(labels: Tensor, logits: Tensor) -> Tensor:
    """The cross entropy of each element's probability."""
    if labels.shape != logits.shape:
        raise ShapeError(f"`logits` and `labels` must have the same shape, received "
                         f"({tuple(logits.shape)} vs {tuple(labels.shape)}).")  # fmt: skip
    return nn.binary_cross_entropy_with_logits(logits, labels, reduction="none")


def weighted_cross_entropy(labels: Tensor, logits: Tensor, weight: float) -> Tensor:
    """The same, with a ``weight`` of what is there."""
    factor = 1 + (weight - 1) * labels
    return (1 - labels) * logits + factor * nn.softplus(-logits)


def log_poisson(targets: Tensor, log_rates: Tensor) -> Tensor:
    """The negative logarithm of Poisson's distribution, but for what depends on targets alone."""
    return ops.exp(log_rates) - log_rates * targets
