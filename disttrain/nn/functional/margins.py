"""Losses over classes that ask for a margin, and their smooth kin for several labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ops
from ...core import Tensor
from ...core.gate import Primitive, gate
from ...core.types import dtypes
from ...core.types.casting import computes_in
from ...errors import ConfigError, ShapeError
from ...ops.functions.args import in_float32, kinds
from ...ops.promotion import refuse
from .activation import logsigmoid
from .common import legacy_reduction, reduce_loss


def _labels(target: np.ndarray, *, where: str, least: int, classes: int) -> Any:
    if target.size and not (np.min(target) >= least and np.max(target) < classes):
        raise ConfigError(
            f"{where}: target out of range: classes {int(np.min(target))} to "
            f"{int(np.max(target))} given; needed {least} to {classes - 1}"
        )
    return target


_check_labels = Primitive("check_labels", _labels, ("target",))
_check_labels.checks = True
_check_labels.shape = lambda target, where, least, classes: (target.shape, target.dtype)
_check_labels.on_device = lambda platform, target, **how: target  # nobody waits there to be told


def _check_classes(where: str, input: Tensor, target: Tensor, least: int) -> None:
    """Raise unless ``target`` holds int64 class numbers of ``input``, from ``least`` on."""
    kinds(where, "fV", input)
    if input.ndim not in (1, 2) or 0 in input.shape[-1:]:
        raise ShapeError(
            f"{where}: input of shape {list(input.shape)} given; needed [C] or [N, C], with at "
            "least one class"
        )
    if target.dtype is not dtypes.int64:
        raise refuse(where, target.dtype.np)
    if type(target) is Tensor and not target.is_meta:
        how = {"where": where, "least": least, "classes": input.shape[-1]}
        gate(_check_labels, (target,), how)


@computes_in("full")
@in_float32
def multi_margin_loss(
    input: Tensor, target: Tensor, p: int = 1, margin: float = 1.0, weight: Tensor | None = None,
    size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Mean over classes j but the target y of weight[y] max(0, margin - x[y] + x[j])ᵖ

    ``input`` (N, C) or (C,), floating; ``target`` (N,) or one number, int64; ``weight`` (C,).
    """
    where = "multi_margin_loss"
    reduction = legacy_reduction(size_average, reduce, reduction)
    if p not in (1, 2):
        raise ConfigError(f"{where}: p={p} given; only p == 1 and p == 2 supported")
    kinds(where, "fV", input)
    n = 1 if input.ndim < 2 else input.shape[0]
    if target.numel() != n or target.ndim > 1:
        raise ShapeError(
            f"{where}: target tensor should be 1-D with size equal to the number of input "
            f"samples (batch size). Expected target size [{n}], but got {list(target.shape)}. "
            f"Input has shape {list(input.shape)}"
        )
    classes = input.shape[-1] if input.ndim else 0
    if weight is not None and tuple(weight.shape) != (classes,):
        raise ShapeError(
            f"{where}: inconsistent weight size, expected {classes} but got {list(weight.shape)}"
        )
    _check_classes(where, input, target, 0)
    labels = target.reshape(-1, 1)
    x = input.reshape(-1, classes)
    short = margin - x.gather(1, labels) + x
    counts = (short > 0) & (ops.arange(classes, device=x.device) != labels)
    loss = ops.where(counts, short, 0.0)
    loss = loss if p == 1 else loss * loss
    if weight is not None:
        loss = loss * weight.index_select(0, labels.reshape(-1)).unsqueeze(1)
    loss = (loss.sum(1) / classes).reshape(target.shape)
    return reduce_loss(loss, reduction, where)


@computes_in("full")
@in_float32
def multilabel_margin_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Sum over labels y and other classes j of max(0, 1 - x[y] + x[j]) / C

    ``input`` (N, C) or (C,), floating; ``target`` of its shape, int64: a sample's labels are
    those before its first -1.
    """
    where = "multilabel_margin_loss"
    reduction = legacy_reduction(size_average, reduce, reduction)
    if target.shape != input.shape:
        raise ShapeError(
            f"{where}: inconsistent target size: {list(target.shape)} for input of size: "
            f"{list(input.shape)}"
        )
    classes = input.shape[-1] if input.ndim else 0
    _check_classes(where, input, target, -1)
    labels = target.reshape(-1, classes)
    x = input.reshape(-1, classes)
    given = (labels < 0).cumsum(1) == 0
    every = ops.arange(classes, device=x.device)
    is_label = (given.unsqueeze(2) & (labels.unsqueeze(2) == every)).any(1)
    at_label = x.gather(1, ops.where(given, labels, 0))
    short = 1 - at_label.unsqueeze(2) + x.unsqueeze(1)
    counts = given.unsqueeze(2) & ~is_label.unsqueeze(1) & (short > 0)
    loss = ops.where(counts, short, 0.0).sum((1, 2)) / classes
    return reduce_loss(loss.reshape(input.shape[:-1]), reduction, where)


@computes_in("full")
@in_float32
def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Mean over the last dimension of the binary cross entropy of sigmoid(input)

    ``target`` (0 or 1 for each class) and ``weight`` broadcast to ``input`` (..., C).
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    loss = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    if weight is not None:
        loss = loss * weight
    loss = loss.sum(input.ndim - 1) / input.shape[-1]
    return reduce_loss(loss, reduction, "multilabel_soft_margin_loss")
