"""Cross entropy and negative log likelihood: targets checked and put in form. Torch's names."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....context import SLOW, thread
from ....core.gate import Primitive, gate
from ....core.tensor import Tensor, wrap
from ....errors import ConfigError, DimError, DTypeError, ShapeError
from ...primitives import elementwise as el
from ...primitives import gathering
from ...primitives.elementwise import cast_like
from ...primitives.loss import cross_entropy_rows
from ...primitives.reduce import sum_
from ...primitives.views import permute, reshape
from ...promotion import same_type
from ..args import kinds
from ..args import tensor as as_input
from ..index_arrays import visible
from .softmax import log_softmax

_CLASSES = (np.dtype(np.int64), np.dtype(np.uint8))
_REDUCTIONS = ("none", "mean", "sum")


# --- what programs call ------------------------------------------------------------------------
def _check_reduction(where: str, reduction: str) -> None:
    if reduction not in _REDUCTIONS:
        raise ConfigError(
            f"{where}: reduction={reduction!r} is not a valid value for reduction; needed one of "
            f"{', '.join(_REDUCTIONS)}"
        )


def _check_target(where: str, input: Tensor, target: Tensor, weight: Tensor | None) -> None:
    shape = tuple(input.shape)
    needed = shape[:1] + shape[2:] if len(shape) > 1 else ()
    kinds(where, "fV", input)
    if target.meta()[1] not in _CLASSES:
        raise DTypeError(
            f"{where}: target of type {target.dtype!r} given; needed class numbers of int64 (or "
            "uint8), for example target.long()"
        )
    if weight is not None:
        same_type(where, input, weight)
    if tuple(target.shape) != needed:
        raise ShapeError(
            f"{where}: target of shape {list(target.shape)} given for an input of shape "
            f"{list(shape)}. Expected: needed {list(needed)}, the input's batch_size and places"
        )
    classes = shape[1] if len(shape) > 1 else shape[0]
    if weight is not None and tuple(weight.shape) != (classes,):
        raise ShapeError(
            f"{where}: weight tensor should be defined either for all {classes} classes or no "
            f"classes, but got weight tensor of shape: {list(weight.shape)}; needed one per class"
        )


def _classes_last(input: Tensor) -> Tensor:
    """(N, C, ...) as rows (all but C, C); a single sample (C) as one row."""
    n = input.ndim
    if n > 2:
        input = permute(input, dims=(0, *range(2, n), 1))
    return reshape(input, shape=(-1, input.shape[-1])) if n != 2 else input


def cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, ignore_index: int = -100,
    reduction: str = "mean", label_smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    """Cross entropy of softmax(input), classes along dimension 1 (0 for a single sample).

    ``target``: class numbers, or probabilities in the shape of ``input``. ``reduction="mean"``
    divides by the weights of the targets that count. Raises ``DimError`` for a class out of range.
    """
    as_input(input, "cross_entropy")
    as_input(target, "cross_entropy", "target")
    _check_reduction("cross_entropy", reduction)
    if not 0 <= label_smoothing <= 1:
        raise ConfigError(
            f"cross_entropy: label_smoothing={label_smoothing} given; it must lie in [0, 1]"
        )
    if target.meta()[1].kind in "fV":
        kinds("cross_entropy", "fV", input)
        return _soft_cross_entropy(input, target, weight, reduction, label_smoothing)
    _check_target("cross_entropy", input, target, weight)
    loss = cross_entropy_rows(
        _classes_last(input), reshape(target, shape=(-1,)), weight,
        ignore_index=int(ignore_index), smoothing=float(label_smoothing), reduction=reduction,
    )[0]  # fmt: skip
    if reduction == "none" and target.ndim != 1:
        return reshape(loss, shape=tuple(target.shape))
    return loss


def _soft_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, smoothing: float
) -> Tensor:
    """Cross entropy against probabilities."""
    if target.shape != input.shape:
        raise ShapeError(
            f"cross_entropy: target probabilities of shape {list(target.shape)} given for an input "
            f"of shape {list(input.shape)}; the shapes must be equal (for class numbers, give "
            "integers: target.long())"
        )
    dim = 1 if input.ndim > 1 else 0
    if smoothing:
        target = target * (1 - smoothing) + smoothing / input.shape[dim]
    terms = log_softmax(input, dim) * target
    if weight is not None:
        terms = terms * reshape(weight, shape=(-1, *(1,) * (input.ndim - dim - 1)))
    loss = -sum_(terms, dims=(dim,), keepdim=False)
    if reduction == "none":
        return loss
    total = sum_(loss, dims=tuple(range(loss.ndim)), keepdim=False)
    n = loss.shape.numel()
    return total * (1.0 / n if n else np.nan) if reduction == "mean" else total


def nll_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """-input at the target's class: ``input`` holds log probabilities, classes along dimension 1.

    ``reduction="mean"`` divides by the weights of the targets that count.
    """
    as_input(input, "nll_loss")
    as_input(target, "nll_loss", "target")
    _check_reduction("nll_loss", reduction)
    _check_target("nll_loss", input, target, weight)
    shape = tuple(target.shape)
    rows, flat = _classes_last(input), reshape(target, shape=(-1,))
    safe, counted = _safe("nll_loss", flat, ignore_index, rows.shape[1])
    at = reshape(safe, shape=(-1, 1))
    picked = reshape(gathering.gather(rows, at, dim=1), shape=(-1,))
    scale = None if weight is None else gathering.take(weight, safe, dim=0)
    if counted is not None:
        picked = el.where(counted, picked, 0.0)
        ones = cast_like(counted, picked)
        scale = ones if scale is None else scale * ones
    loss = picked if scale is None else picked * scale
    if reduction == "none":
        return reshape(-loss, shape=shape)
    total = -sum_(loss, dims=(0,), keepdim=False)
    if reduction == "sum":
        return total
    if scale is None:
        n = flat.shape[0]
        return total / n if n else total * np.nan
    return total / sum_(scale, dims=(0,), keepdim=False)


def _safe(where: str, target: Tensor, ignore: int, classes: int) -> tuple[Tensor, Tensor | None]:
    """Targets with 0 in place of those to ignore, and which count (None: all)."""
    if thread.mode == SLOW or not visible(target):  # as operations, which a capture can repeat
        counted = el.ne(target, ignore)
        safe = el.cast(el.where(counted, target, 0), dtype=np.dtype(np.int64))
        if visible(safe):
            gate(_check_classes, (safe,), {"where": where, "ignore": ignore, "classes": classes})
        return safe, counted
    labels = target.array.astype(np.int64, copy=False)
    if not labels.size or (labels.min() >= 0 and labels.max() < classes and ignore < 0):
        return (target if labels is target.array else wrap(labels)), None
    counted = labels != ignore
    safe = np.where(counted, labels, 0)
    _within(safe, where, ignore, classes)
    return wrap(safe), wrap(counted)


def _within(safe: np.ndarray, where: str, ignore: int, classes: int) -> Any:
    if safe.size and (safe.min() < 0 or safe.max() >= classes):
        bad = safe[(safe < 0) | (safe >= classes)][0]
        raise DimError(
            f"{where}: target {bad} is out of range; with {classes} classes it must lie in "
            f"0..{classes - 1}, or equal ignore_index={ignore}"
        )
    return safe


_check_classes = Primitive("check_classes", _within, ("safe",))
_check_classes.checks = True
_check_classes.shape = lambda safe, **how: (safe.shape, safe.dtype)


__all__ = ["cross_entropy", "nll_loss"]
