"""Cross entropy of rows of logits and class numbers, on arrays.

    cross_entropy(logits, target, weight=None, ignore_index=-100, label_smoothing=0.0)
        -> losses, lse, total, count
    cross_entropy_backward(g, logits, target, lse, weight=None, ignore_index=-100,
                           label_smoothing=0.0) -> dlogits
    prepared(shape, dtype, ...), prepared_backward(shape, dtype, ...)    the same for many calls

Arrays are float32, float64, float16 or bfloat16 of any layout; the last two are computed in
float32. Every row is read from memory once: it stays in the cache for the later passes. On an
accelerator the host waits for nothing: sums are arrays of no axes, and a target out of range makes
the loss nan instead of an error (``ops/device/loss.py`` looks for it there).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ...errors import DimError
from ..family import Family
from ..lang.expr import cast, eq, exp, index, load, log, ne, var, where
from ..lang.kernel import Array, Kernel, Let, Loop, Put, Reduce, Scalar, Store, wide_type
from .places import empty, platform_of, zeros

_X, _G, _MAX = var("x"), var("g"), var("max")


def _cross_entropy(dtype: str, weighted: bool, smooth: bool) -> Kernel:
    """Per row: lse - x[t], or with smoothing e: (1-e) w[t] (lse - x[t]) + e/C sum(w (lse - x)).
    As max and lse - max: where logits are far from zero, their sum has lost digits."""
    wide, t, above = wide_type(dtype), var("target"), var("above")
    own = _MAX - load("x", t) + above
    weight = load("weight", t) if weighted else None
    each = _MAX - _X + above
    each = var("weight") * each if weighted else each
    loss = weight * own if weight is not None else own
    rest = (Loop((Reduce("rest", "sum", each),)),) if smooth else ()
    if smooth:
        loss = (1 - var("smoothing")) * loss + var("smoothing") * var("share") * var("rest")
    counted = ne(t, var("ignore"))
    params = (
        Array("x", dtype),
        Array("target", "int64", "row"),
        *((Array("weight", dtype, "col"),) if weighted else ()),
        Scalar("ignore", "int64"),
        *((Scalar("smoothing", wide), Scalar("share", wide)) if smooth else ()),
        Array("losses", wide, "row", writes=True),
        Array("lses", "float64", "row", writes=True),
        Array("totals", "float64", "one", writes=True),
        Array("counts", "float64", "one", writes=True),
    )
    steps = (
        Loop((Reduce("max", "maxnum", _X),)),
        Loop((Reduce("sum", "sum", exp(_X - _MAX)),)),
        Let("above", log(var("sum"))),
        *rest,
        Let("loss", where(counted, loss, 0.0)),
        Put("losses", var("loss")),
        Put("lses", cast(_MAX, "float64") + cast(above, "float64")),
        Put("totals", var("loss"), add=True),
        Put("counts", where(counted, 1.0 if weight is None else weight, 0.0), add=True),
    )
    return Kernel("cross_entropy", params, steps)


def _cross_entropy_backward(dtype: str, weighted: bool, smooth: bool, each: bool) -> Kernel:
    wide, t, lse = wide_type(dtype), var("target"), var("lse")
    p = exp(_X - var("high") - var("low"))
    hit = where(eq(index(), t), 1.0, 0.0)
    value = p - hit
    if weighted:
        value = load("weight", t) * value
    if smooth:
        spread = var("weight_sum") * p - (var("weight") if weighted else 1.0)
        value = (1 - var("smoothing")) * value + var("smoothing") * var("share") * spread
    params = (
        Array("g", wide, "row") if each else Scalar("g", wide),
        Array("x", dtype),
        Array("target", "int64", "row"),
        Array("lse", "float64", "row"),
        *((Array("weight", dtype, "col"),) if weighted else ()),
        Scalar("ignore", "int64"),
        *([Scalar(n, wide) for n in ("smoothing", "share", "weight_sum")] if smooth else ()),
        Array("out", dtype, writes=True),
    )
    steps = (
        Let("high", cast(lse, wide)),
        Let("low", cast(lse - cast(var("high"), "float64"), wide)),
        Let("scale", where(ne(t, var("ignore")), _G, 0.0)),
        Loop((Store("out", where(eq(var("scale"), 0.0), 0.0, var("scale") * value)),)),
    )
    return Kernel("cross_entropy_backward", params, steps)


_FLAGS = [(w, s) for w in (False, True) for s in (False, True)]
_CROSS_ENTROPY = {(w, s): Family(partial(_cross_entropy, weighted=w, smooth=s)) for w, s in _FLAGS}
_CROSS_ENTROPY_BACKWARD = {
    (w, s, e): Family(partial(_cross_entropy_backward, weighted=w, smooth=s, each=e))
    for w, s in _FLAGS
    for e in (False, True)
}


def cross_entropy(
    logits: np.ndarray,
    target: np.ndarray,
    weight: np.ndarray | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> tuple[np.ndarray, np.ndarray, Any, Any]:
    """Losses per row of (N, C) logits for (N,) int64 targets.

    Returns the N losses (0 where ignored), the N log-sum-exps (float64) that the backward function
    needs, the sum of the losses, and the sum of the weights of the rows that count (their number
    without ``weight``): the mean loss is sum / weights. Raises ``DimError`` for a target out of
    range.
    """
    smooth = label_smoothing != 0.0
    n, c = logits.shape
    wide = np.float64 if logits.dtype == np.float64 else np.float32
    losses, lse = empty(logits, (n,), wide), empty(logits, (n,), np.float64)
    sums = zeros(logits, (2, 1), np.float64)
    args = [logits, target, *(() if weight is None else (weight,)), float(ignore_index)]
    args += [float(label_smoothing), 1.0 / max(c, 1)] if smooth else []
    _CROSS_ENTROPY[weight is not None, smooth][logits.dtype](*args, losses, lse, sums[0], sums[1])
    if platform_of(logits) is not None:
        return losses, lse, sums[0].reshape(()), sums[1].reshape(())
    return losses, lse, *_sums(sums[0], sums[1], target, ignore_index, c)


def _sums(total: Any, count: Any, target: np.ndarray, ignore_index: int, c: int) -> tuple:
    total, count = total.item(), count.item()
    if total != total or count != count:
        _check_targets(target, ignore_index, c)
    return total, count


def prepared(
    shape: tuple, dtype: np.dtype, ignore_index: int, smoothing: float, reduction: str
) -> Callable[..., tuple]:
    """``run(logits, target)`` for the host's logits of that shape and int64 targets: (loss, lse,
    count) as arrays; ``reduction`` is "mean", "sum" or "none"."""
    n, c = shape
    wide = np.dtype(wide_type(dtype.name))
    program = _CROSS_ENTROPY[False, smoothing != 0.0][dtype]
    numbers = [float(ignore_index)]
    numbers += [float(smoothing), 1.0 / max(c, 1)] if smoothing else []

    def run(logits: np.ndarray, target: np.ndarray, weight: None = None) -> tuple:
        losses, lse = np.empty(n, wide), np.empty(n)
        total, count = np.zeros(1), np.zeros(1)
        args = (logits, target, *numbers, losses, lse, total, count)
        if program.fast(*args) is None:
            program.slow(*args)
        summed, counted = _sums(total, count, target, ignore_index, c)
        if reduction == "none":
            loss = losses.astype(dtype, copy=False)
        elif reduction == "sum":
            loss = np.array(summed, dtype)
        else:
            loss = np.array(summed / counted if counted else np.nan, dtype)
        return loss, lse, np.array(counted, wide)

    return run


def prepared_backward(
    shape: tuple, dtype: np.dtype, ignore_index: int, smoothing: float
) -> Callable[..., np.ndarray]:
    """``run(g, logits, target, lse)``, as ``cross_entropy_backward`` of one number ``g``."""
    c = shape[-1]
    program = _CROSS_ENTROPY_BACKWARD[False, smoothing != 0.0, False][dtype]
    numbers = [float(ignore_index)]
    numbers += [float(smoothing), 1.0 / max(c, 1), float(c)] if smoothing else []

    def run(g: float, logits: np.ndarray, target: np.ndarray, lse: np.ndarray) -> np.ndarray:
        out = np.empty(shape, dtype)
        args = (g, logits, target, lse, *numbers, out)
        if program.fast(*args) is None:
            program.slow(*args)
        return out

    return run


def _check_targets(target: np.ndarray, ignore_index: int, c: int) -> None:
    wrong = target[((target < 0) | (target >= c)) & (target != ignore_index)]
    if wrong.size:
        raise DimError(
            f"cross_entropy: target {wrong[0]} is out of range; with {c} classes it must be in "
            f"0..{c - 1}, or equal ignore_index ({ignore_index}) to be passed over"
        )


def cross_entropy_backward(
    g: np.ndarray | float,
    logits: np.ndarray,
    target: np.ndarray,
    lse: np.ndarray,
    weight: np.ndarray | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> np.ndarray:
    """The gradient of the logits. ``g`` is the gradient of each loss: N values, or one number for
    all (for the mean loss: its gradient divided by the count that ``cross_entropy`` returned)."""
    smooth, c = label_smoothing != 0.0, logits.shape[-1]
    wide = np.float64 if logits.dtype == np.float64 else np.float32
    lse = lse.astype(np.float64, copy=False)
    scale: Any = g
    if platform_of(g) is not None:  # a number that the host does not know serves all rows
        scale = np.broadcast_to(scale.astype(wide, copy=False), lse.shape)
    each = getattr(scale, "ndim", 0) > 0
    out = empty(logits, logits.shape, logits.dtype)
    args = [logits, target, lse, *(() if weight is None else (weight,)), float(ignore_index)]
    if smooth:
        weights: Any = float(c) if weight is None else weight.sum(dtype=np.float64)
        there = platform_of(weights) is not None
        weights = weights.astype(wide) if there else float(weights)
        args += [float(label_smoothing), 1.0 / max(c, 1), weights]
    program = _CROSS_ENTROPY_BACKWARD[weight is not None, smooth, each][logits.dtype]
    program(scale if each else float(scale), *args, out)
    return out
