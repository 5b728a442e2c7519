"""The cross entropy of a linear map's outputs, whole or in parts of the batch whose logits are not
kept."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ... import ops
from ...core import Tensor, checkpoint
from ...errors import ConfigError
from .loss import cross_entropy

IGNORED = -100
_RATIO = 2  # by default a part of the logits is this many times as large as the input


@dataclass(frozen=True)
class LinearCrossEntropyOptions:
    """``linear_cross_entropy`` in parts of ``batch_chunk_size`` rows (None: chosen by
    ``chunking_method``, "auto" or "aspect_ratio:N": logits of N times the input's size): each
    part's logits are computed again in backward, and never are all of them there.

    ``allow_retain_graph`` is always so here; ``acc_policy`` and ``acc_dtype`` are taken and change
    nothing: parts are summed as autograd sums.
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: Any = None

    def __post_init__(self) -> None:
        size = self.batch_chunk_size
        if size is not None and not (isinstance(size, int) and size > 0):
            raise ConfigError(
                f"LinearCrossEntropyOptions: batch_chunk_size={size!r} given; needed at least 1"
            )

    def rows(self, features: int, classes: int) -> int:
        """How many rows one part has."""
        if self.batch_chunk_size is not None:
            return self.batch_chunk_size
        _, _, given = (self.chunking_method or "").partition(":")
        ratio = int(given) if given.isdigit() else _RATIO
        return max(1, ratio * features // max(classes, 1) * 16)


def linear_cross_entropy(
    input: Tensor, linear_weight: Tensor, target: Tensor, *, linear_bias: Tensor | None = None,
    weight: Tensor | None = None, reduction: str = "mean", ignore_index: int | None = None,
    label_smoothing: float = 0.0, options: LinearCrossEntropyOptions | None = None,
) -> Tensor:  # fmt: skip
    """``cross_entropy(input @ linear_weight.T + linear_bias, target)``: input (N, E) or (E),
    weights (C, E), or (C, d1, ..., E) for logits (N, C, d1, ...)."""
    ignored = IGNORED if ignore_index is None else ignore_index
    named = {"ignore_index": ignored, "label_smoothing": label_smoothing}
    chunked = options is not None and linear_weight.ndim == input.ndim == 2
    if not chunked or reduction == "none":
        logits = _logits(input, linear_weight, linear_bias)
        return cross_entropy(logits, target, weight, reduction=reduction, **named)
    rows = options.rows(input.shape[-1], linear_weight.shape[0])  # type: ignore[union-attr]
    parts = [
        checkpoint(_part, *pair, linear_weight, linear_bias, weight, named, use_reentrant=False)
        for pair in zip(input.split(rows), target.split(rows), strict=True)
    ]
    total = ops.stack(parts).sum()
    if reduction == "mean":
        total = total / _count(target, weight, ignored)
    return total


def _part(
    x: Tensor, target: Tensor, matrix: Tensor, bias: Tensor | None, weight: Tensor | None,
    named: dict[str, Any],
) -> Tensor:  # fmt: skip
    return cross_entropy(ops.linear(x, matrix, bias), target, weight, reduction="sum", **named)


def _count(target: Tensor, weight: Tensor | None, ignored: int) -> Tensor | int:
    """What a mean divides by: the weights of the targets that count."""
    if target.dtype.is_floating_point:
        return target.shape[0]
    valid = target != ignored
    if weight is None:
        return valid.sum()
    return (weight[ops.where(valid, target, 0)] * valid.to(weight.dtype)).sum()


def _logits(input: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
    """(N, C, d1, ...), from (C, d1, ..., E)."""
    *sizes, width = matrix.shape
    flat = bias if bias is None else bias.reshape(math.prod(sizes))
    out = ops.linear(input, matrix.reshape(-1, width), flat)
    return out.reshape(*input.shape[:-1], *sizes) if len(sizes) > 1 else out


__all__ = ["LinearCrossEntropyOptions", "linear_cross_entropy"]
