"""Cross entropy and negative log likelihood.

``cross_entropy_rows`` is fused: logits (N, C) and class numbers (N) to the loss, without the
log-softmax in between. Its backward is a primitive with its own derivative. What is rarer (class
probabilities as targets) is composed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backends.fused import cross_entropy as fused
from ...core.annotations import Shaped, Value
from ...core.gate import Primitive
from ...errors import ConfigError
from ..declare import primitive
from . import elementwise as el
from . import gathering
from .batching import front, fronted, merge, split
from .elementwise import cast_like, ne
from .reduce import sum_
from .softmax import softmax_, softmax_backward
from .views import expand, reshape


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
    return loss, lse, np.asarray(count, _wide(a.dtype))


def _wide(kind: np.dtype) -> np.dtype:
    return np.dtype(np.float64 if kind == np.float64 else np.float32)


def _rows_shape(
    a: Shaped, target: object, weight: object, ignore_index: int, smoothing: float, reduction: str
) -> list:
    n = a.shape[:1]
    wide = _wide(a.dtype)
    lse = (n, np.dtype(np.float64))
    return [(n if reduction == "none" else (), a.dtype), lse, ((), wide)]


def _rows_rule(
    g: tuple,
    a: object,
    target: object,
    weight: object,
    out: tuple,
    ignore_index: int,
    smoothing: float,
    reduction: str,
) -> tuple:
    _, lse, count = out
    scale = g[0]
    if reduction == "mean":
        scale = scale / count
    da = cross_entropy_backward(
        scale, a, target, weight, lse, ignore_index=ignore_index, smoothing=smoothing
    )
    return da, None, None


def _weights(target: Value, weight: Any, ignore_index: int, like: Value) -> tuple:
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
    _, weights = _weights(target, args[2], params["ignore_index"], loss)
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


cross_entropy_rows: Primitive = primitive(
    "cross_entropy", _rows, "a target weight", vjp=_rows_rule, multi=True, nondiff_outputs=(1, 2),
    shape=_rows_shape, batch=_rows_batch, samples=_row_samples,
)  # fmt: skip
cross_entropy_rows.checks = True


def _backward(
    scale: Any, a: Any, target: Any, weight: Any, lse: Any, ignore_index: int, smoothing: float
) -> Any:
    target = target.astype(np.int64, copy=False)
    if scale.ndim:
        scale = scale.astype(_wide(a.dtype), copy=False)
    else:
        scale = float(scale)
    return fused.cross_entropy_backward(scale, a, target, lse, weight, ignore_index, smoothing)


def _columns(rows: Value) -> Any:
    return reshape(rows, shape=(*rows.shape, 1)) if len(rows.shape) else rows


def _backward_rule(
    g: Value, scale: Any, a: Value, target: Any, weight: object, lse: object, ignore_index: int,
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
        scaled = g * (_columns(cast_like(scale, a)) * _columns(share))
        da = softmax_backward(cast_like(scaled, p), p, dim=1)
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


cross_entropy_backward: Primitive = primitive(
    "cross_entropy_backward", _backward, "scale a target weight lse", vjp=_backward_rule,
    shape=lambda scale, a, *rest, **params: (a.shape, a.dtype), batch=_backward_batch,
)  # fmt: skip
