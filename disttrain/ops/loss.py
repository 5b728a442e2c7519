"""Cross entropy and negative log likelihood.

``cross_entropy_rows`` is fused: logits (N, C) and class numbers (N) to the loss, without the
log-softmax in between. Its backward is a primitive with its own derivative. What is rarer (class
probabilities as targets) is composed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..backends import fused_cross_entropy as fused
from ..core.tensor import Tensor, wrap
from ..errors import ConfigError, DimError, DTypeError, ShapeError
from . import elementwise as el
from . import gathering
from .args import tensor as as_input
from .batching import front, fronted, merge, split
from .declare import primitive
from .elementwise import cast_like, ne
from .places import visible
from .reduce import sum_
from .softmax import log_softmax, softmax_, softmax_backward
from .views import expand, permute, reshape

_REDUCTIONS = ("none", "mean", "sum")


# --- the fused rows ----------------------------------------------------------------------------
def _rows(
    a: Any, target: Any, weight: Any, ignore_index: int, smoothing: float, reduction: str
) -> tuple:
    """(loss, log-sum-exp per row, weight of the rows that count)."""
    target = target.astype(np.int64, copy=False)
    losses, lse, total, count = fused.cross_entropy(a, target, weight, ignore_index, smoothing)
    if reduction == "none":
        loss = losses.astype(a.dtype, copy=False)
    elif reduction == "sum":
        loss = np.asarray(total, a.dtype)
    else:
        loss = np.asarray(total / count if count else np.nan, a.dtype)
    return loss, lse, np.asarray(count, lse.dtype)


def _wide(kind: np.dtype) -> np.dtype:
    return np.dtype(np.float64 if kind == np.float64 else np.float32)


def _rows_shape(
    a: Any, target: Any, weight: Any, ignore_index: int, smoothing: float, reduction: str
) -> list:
    n = a.shape[:1]
    wide = _wide(a.dtype)
    return [(n if reduction == "none" else (), a.dtype), (n, wide), ((), wide)]


def _rows_rule(
    g: Any, a: Any, target: Any, weight: Any, out: Any, ignore_index: int, smoothing: float,
    reduction: str,
) -> tuple:  # fmt: skip
    _, lse, count = out
    scale = g[0]
    if reduction == "mean":
        scale = scale / count
    da = cross_entropy_backward(
        scale, a, target, weight, lse, ignore_index=ignore_index, smoothing=smoothing
    )
    return da, None, None


def _weights(target: Any, weight: Any, ignore_index: int, like: Any) -> tuple:
    """Per row: 1 where the target counts, and the weight of its class there."""
    counted = cast_like(ne(target, ignore_index), like)
    if weight is None:
        return counted, counted
    safe = el.cast(target * ne(target, ignore_index), dtype=np.dtype(np.int64))
    return counted, gathering.take(weight, safe, dim=0) * counted


def _rows_batch(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
    a, target = fronted(args[0], dims[0], size), fronted(args[1], dims[1], size)
    if dims[2] is not None:
        raise ConfigError("cross_entropy: vmap over class weights is not supported")
    each = {**params, "reduction": "none"}
    loss, lse, _ = cross_entropy_rows(merge(a), merge(target), args[2], **each)
    loss, lse = split(loss, size), split(lse, size)
    _, weights = _weights(target, args[2], params["ignore_index"], lse)
    count = sum_(weights, dims=(1,), keepdim=False)
    if params["reduction"] != "none":
        loss = sum_(loss, dims=(1,), keepdim=False)
        if params["reduction"] == "mean":
            loss = loss / cast_like(count, loss)
    return (loss, lse, count), (0, 0, 0)


def _row_samples(rng: np.random.Generator) -> list:
    a, t = rng.normal(size=(3, 4)), np.array([1, 3, 0])
    mean = {"ignore_index": -100, "smoothing": 0.0, "reduction": "mean"}
    none = {"ignore_index": 3, "smoothing": 0.2, "reduction": "none"}
    return [((a, t, None), mean), ((a, t, rng.uniform(0.5, 2, 4)), none)]


cross_entropy_rows = primitive(
    "cross_entropy", _rows, "a target weight", vjp=_rows_rule, multi=True, nondiff_outputs=(1, 2),
    shape=_rows_shape, batch=_rows_batch, samples=_row_samples,
)  # fmt: skip


def _backward(
    scale: Any, a: Any, target: Any, weight: Any, lse: Any, ignore_index: int, smoothing: float
) -> Any:
    target = target.astype(np.int64, copy=False)
    if scale.ndim:
        scale = scale.astype(lse.dtype, copy=False)
    else:
        scale = float(scale)
    return fused.cross_entropy_backward(scale, a, target, lse, weight, ignore_index, smoothing)


def _columns(rows: Any) -> Any:
    return reshape(rows, shape=(*rows.shape, 1)) if len(rows.shape) else rows


def _backward_rule(
    g: Any, scale: Any, a: Any, target: Any, weight: Any, lse: Any, ignore_index: int,
    smoothing: float, needs: tuple,
) -> tuple:  # fmt: skip
    """The result is linear in ``scale`` and depends on ``a`` through p = softmax(a) alone:
    scale * (share * p - what does not depend on a)."""
    ones = cast_like(ne(target, ignore_index), a)
    dscale = da = None
    if needs[0]:
        unit = cross_entropy_backward(
            ones, a, target, weight, lse, ignore_index=ignore_index, smoothing=smoothing
        )
        dscale = sum_(g * unit, dims=(1,), keepdim=False)
        if not len(scale.shape):
            dscale = sum_(dscale, dims=(0,), keepdim=False)
    if needs[1]:
        _, share = _weights(target, weight, ignore_index, a)
        if smoothing:
            classes = tuple(a.shape)[1]
            total = (
                float(classes)
                if weight is None
                else _columns(sum_(weight, dims=(0,), keepdim=False))
            )
            share = share * (1 - smoothing) + ones * (total * (smoothing / classes))
        p = softmax_(a, dim=1)  # not by lse, which the next derivative would take as constant
        da = softmax_backward(g * (_columns(cast_like(scale, a)) * _columns(share)), p, dim=1)
    return dscale, da, None, None, None


def _backward_batch(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
    scale, a, target, weight, lse = args
    a, target, lse = (fronted(args[i], dims[i], size) for i in (1, 2, 4))
    rows = tuple(a.shape)[1]
    if dims[0] is not None:
        scale = front(scale, dims[0])
        if len(scale.shape) == 1:
            scale = expand(_columns(scale), shape=(size, rows))
        scale = merge(scale)
    elif len(scale.shape):
        scale = merge(fronted(scale, None, size))
    out = cross_entropy_backward(scale, merge(a), merge(target), weight, merge(lse), **params)
    return split(out, size), 0


cross_entropy_backward = primitive(
    "cross_entropy_backward", _backward, "scale a target weight lse", vjp=_backward_rule,
    shape=lambda scale, a, *rest, **params: (a.shape, a.dtype), batch=_backward_batch,
)  # fmt: skip


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
    if target.meta()[1].kind not in "iu":
        raise DTypeError(
            f"{where}: target of type {target.dtype!r} given; needed class numbers, for example "
            "target.long()"
        )
    if tuple(target.shape) != needed:
        raise ShapeError(
            f"{where}: target of shape {list(target.shape)} given for an input of shape "
            f"{list(shape)}; needed {list(needed)}: the input's without its class dimension"
        )
    classes = shape[1] if len(shape) > 1 else shape[0]
    if weight is not None and tuple(weight.shape) != (classes,):
        raise ShapeError(
            f"{where}: weight of shape {list(weight.shape)} given; needed one per class, "
            f"[{classes}]"
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
    return total * (1.0 / max(1, loss.shape.numel())) if reduction == "mean" else total


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
        return total * (1.0 / n if n else np.nan)
    return total / sum_(scale, dims=(0,), keepdim=False)


def _safe(where: str, target: Tensor, ignore: int, classes: int) -> tuple[Tensor, Tensor | None]:
    """Targets with 0 in place of those to ignore, and which count (None: all)."""
    if not visible(target):
        counted = el.ne(target, ignore)
        return el.cast(el.where(counted, target, 0), dtype=np.dtype(np.int64)), counted
    labels = target.array.astype(np.int64, copy=False)
    if not labels.size or (labels.min() >= 0 and labels.max() < classes and ignore < 0):
        return (target if labels is target.array else wrap(labels)), None
    counted = labels != ignore
    safe = np.where(counted, labels, 0)
    if safe.min() < 0 or safe.max() >= classes:
        bad = safe[(safe < 0) | (safe >= classes)][0]
        raise DimError(
            f"{where}: target {bad} is out of range; with {classes} classes it must lie in "
            f"0..{classes - 1}, or equal ignore_index={ignore}"
        )
    return wrap(safe), wrap(counted)


__all__ = ["cross_entropy", "nll_loss"]
