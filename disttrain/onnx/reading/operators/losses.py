"""Losses, and the steps of optimizers that ONNX has as operators."""

from __future__ import annotations

from typing import Any

from ....core.tensor import Tensor
from ....nn import functional as F
from ....ops import api
from ..table import TRAINING, operator


@operator("NegativeLogLikelihoodLoss")
def _nll(
    x: Tensor, target: Tensor, weight: Tensor | None = None, *, ignore_index: int | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    ignored = -100 if ignore_index is None else ignore_index
    return F.nll_loss(x, target.long(), weight, ignore_index=ignored, reduction=reduction)


@operator("SoftmaxCrossEntropyLoss")
def _cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor | None = None, *, ignore_index: int | None = None,
    reduction: str = "mean",
) -> tuple[Tensor, Tensor]:  # fmt: skip
    logs = F.log_softmax(x, 1)
    loss = _nll(logs, target, weight, ignore_index=ignore_index, reduction=reduction)
    return loss, logs


def _groups(given: tuple, parts: int) -> list[tuple]:
    """Tensors, their gradients, their states: a row for each tensor."""
    n = len(given) // parts
    return list(zip(*[given[i * n : (i + 1) * n] for i in range(parts)]))


def _columns(rows: list[tuple]) -> tuple:
    return tuple([value for column in zip(*rows) for value in column])


@operator("Adagrad", domain=TRAINING)
def _adagrad(
    rate: Tensor, count: Tensor, *given: Tensor, decay_factor: float = 0.0, epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
) -> tuple:  # fmt: skip
    r = rate / (1 + count * decay_factor)
    rows = []
    for x, g, h in _groups(given, 3):
        g = g + norm_coefficient * x
        h = h + g * g
        rows.append((x - r * g / (api.sqrt(h) + epsilon), h))
    return _columns(rows)


@operator("Momentum", domain=TRAINING)
def _momentum(
    rate: Tensor, count: Tensor, *given: Tensor, alpha: float, beta: float, mode: str,
    norm_coefficient: float,
) -> tuple:  # fmt: skip
    share = beta if int(count) > 0 else 1.0
    rows = []
    for x, g, v in _groups(given, 3):
        g = g + norm_coefficient * x
        v = alpha * v + share * g
        rows.append((x - rate * (g + alpha * v if mode == "nesterov" else v), v))
    return _columns(rows)


@operator("Adam", domain=TRAINING)
def _adam(
    rate: Tensor, count: Tensor, *given: Tensor, alpha: float = 0.9, beta: float = 0.999,
    epsilon: float = 1e-6, norm_coefficient: float = 0.0, norm_coefficient_post: float = 0.0,
) -> tuple:  # fmt: skip
    t: Any = int(count)
    r = rate * (1 - beta**t) ** 0.5 / (1 - alpha**t) if t > 0 else rate
    rows = []
    for x, g, v, h in _groups(given, 4):
        g = g + norm_coefficient * x
        v = alpha * v + (1 - alpha) * g
        h = beta * h + (1 - beta) * g * g
        rows.append(((1 - norm_coefficient_post) * (x - r * v / (api.sqrt(h) + epsilon)), v, h))
    return _columns(rows)
