"""Fused functions over the last axis, on arrays: softmax, normalisations, cross entropy.

    softmax(x, out=None) -> out                      softmax_backward(g, out, into=None) -> dx
    log_softmax(x, out=None) -> out                  log_softmax_backward(g, out, into=None) -> dx
    layer_norm(x, weight, bias, eps) -> out, mean, rstd
    layer_norm_backward(g, x, mean, rstd, weight) -> dx, dweight, dbias
    rms_norm(x, weight, eps) -> out, rstd
    rms_norm_backward(g, x, rstd, weight) -> dx, dweight
    cross_entropy(logits, target, weight=None, ignore_index=-100, label_smoothing=0.0)
        -> losses, lse, total, count
    cross_entropy_backward(g, logits, target, lse, weight=None, ignore_index=-100,
                           label_smoothing=0.0) -> dlogits

Arrays are float32, float64, float16 or bfloat16 of any layout; the last two are computed in
float32. Every row is read from memory once: it stays in the cache for the later passes. Nothing here knows
Tensors or gradients' graphs.
"""

from __future__ import annotations

import math

import numpy as np

from ..errors import DimError
from .expr import Expr, eq, exp, index, load, log, ne, rsqrt, var, where
from .kernel import Array, Kernel, Let, Loop, Put, Reduce, Scalar, Store
from .program import Family

_X, _G, _OUT, _MAX = var("x"), var("g"), var("out"), var("max")
_BLOCK = 512  # rows whose parameter gradients are added up before they join the total


def _wide(dtype: str) -> str:
    """The type of statistics kept beside arrays of ``dtype``."""
    return "float64" if dtype == "float64" else "float32"


def _out(dtype: str, name: str = "out") -> Array:
    return Array(name, dtype, writes=True)


def _softmax(dtype: str) -> Kernel:
    shifted = exp(_X - _MAX)
    total = Reduce("total", "sum", shifted)
    if dtype == _wide(dtype):
        body, last = (Store("out", shifted), total), _OUT * var("scale")
    else:
        body, last = (total,), shifted * var("scale")
    steps = (
        Loop((Reduce("max", "maxnum", _X),)),
        Loop(body),
        Let("scale", 1 / var("total")),
        Loop((Store("out", last),)),
    )
    return Kernel("softmax", (Array("x", dtype), _out(dtype)), steps)


def _softmax_backward(dtype: str) -> Kernel:
    y = var("y")
    steps = (Loop((Reduce("dot", "sum", _G * y),)), Loop((Store("out", y * (_G - var("dot"))),)))
    return Kernel("softmax_backward", (Array("g", dtype), Array("y", dtype), _out(dtype)), steps)


def _log_softmax(dtype: str) -> Kernel:
    steps = (
        Loop((Reduce("max", "maxnum", _X),)),
        Loop((Reduce("total", "sum", exp(_X - _MAX)),)),
        Let("log_total", log(var("total"))),
        Loop((Store("out", _X - _MAX - var("log_total")),)),
    )
    return Kernel("log_softmax", (Array("x", dtype), _out(dtype)), steps)


def _log_softmax_backward(dtype: str) -> Kernel:
    steps = (
        Loop((Reduce("total", "sum", _G),)),
        Loop((Store("out", _G - exp(var("y")) * var("total")),)),
    )
    params = (Array("g", dtype), Array("y", dtype), _out(dtype))
    return Kernel("log_softmax_backward", params, steps)


_SOFTMAX = Family(_softmax)
_SOFTMAX_BACKWARD = Family(_softmax_backward)
_LOG_SOFTMAX = Family(_log_softmax)
_LOG_SOFTMAX_BACKWARD = Family(_log_softmax_backward)


def softmax(x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """exp(x) / sum(exp(x)) over the last axis."""
    out = np.empty(x.shape, x.dtype) if out is None else out
    p = _SOFTMAX[x.dtype]
    p.fast(x, out) is None and p.slow(x, out)
    return out


def softmax_backward(g: np.ndarray, y: np.ndarray, into: np.ndarray | None = None) -> np.ndarray:
    """The gradient of the input of ``y = softmax(x)``, from the gradient of ``y``."""
    into = np.empty(y.shape, y.dtype) if into is None else into
    p = _SOFTMAX_BACKWARD[y.dtype]
    p.fast(g, y, into) is None and p.slow(g, y, into)
    return into


def log_softmax(x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """log(softmax(x)) over the last axis."""
    out = np.empty(x.shape, x.dtype) if out is None else out
    p = _LOG_SOFTMAX[x.dtype]
    p.fast(x, out) is None and p.slow(x, out)
    return out


def log_softmax_backward(
    g: np.ndarray, y: np.ndarray, into: np.ndarray | None = None
) -> np.ndarray:
    """The gradient of the input of ``y = log_softmax(x)``."""
    into = np.empty(y.shape, y.dtype) if into is None else into
    p = _LOG_SOFTMAX_BACKWARD[y.dtype]
    p.fast(g, y, into) is None and p.slow(g, y, into)
    return into


# -- normalisations ------------------------------------------------------------------------------


def _affine(value: Expr, weight: bool, bias: bool) -> Expr:
    value = value * var("weight") if weight else value
    return value + var("bias") if bias else value


def _columns(dtype: str, weight: bool, bias: bool) -> tuple[Array, ...]:
    named = (("weight", weight), ("bias", bias))
    return tuple(Array(name, dtype, "col") for name, there in named if there)


def _layer_norm(dtype: str, weight: bool, bias: bool) -> Kernel:
    wide = _wide(dtype)
    centred = _X - var("mean")
    params = (
        Array("x", dtype),
        *_columns(dtype, weight, bias),
        Scalar("eps", wide),
        Scalar("share", wide),
        _out(dtype),
        Array("means", wide, "row", writes=True),
        Array("rstds", wide, "row", writes=True),
    )
    steps = (
        Loop((Reduce("total", "sum", _X),)),
        Let("mean", var("total") * var("share")),
        Loop((Reduce("squares", "sum", centred * centred),)),
        Let("rstd", rsqrt(var("squares") * var("share") + var("eps"))),
        Put("means", var("mean")),
        Put("rstds", var("rstd")),
        Loop((Store("out", _affine(centred * var("rstd"), weight, bias)),)),
    )
    return Kernel("layer_norm", params, steps)


def _layer_norm_backward(dtype: str, weight: bool) -> Kernel:
    wide = _wide(dtype)
    hat, mean, rstd = var("hat"), var("mean"), var("rstd")
    hat = (_X - mean) * rstd
    g = _G * var("weight") if weight else _G
    params = (
        Array("g", dtype),
        Array("x", dtype),
        Array("mean", wide, "row"),
        Array("rstd", wide, "row"),
        *_columns(dtype, weight, False),
        Scalar("share", wide),
        _out(dtype),
        *([Array(n, wide, "col", writes=True) for n in ("dweight", "dbias")] if weight else []),
    )
    sums = (Reduce("a", "sum", g), Reduce("b", "sum", g * hat))
    extra = (Store("dweight", _G * hat, add=True), Store("dbias", _G, add=True))
    steps = (
        Loop((*sums, *(extra if weight else ()))),
        Let("a_mean", var("a") * var("share")),
        Let("b_mean", var("b") * var("share")),
        Loop((Store("out", rstd * (g - var("a_mean") - hat * var("b_mean"))),)),
    )
    return Kernel("layer_norm_backward", params, steps)


def _rms_norm(dtype: str, weight: bool) -> Kernel:
    wide = _wide(dtype)
    params = (
        Array("x", dtype),
        *_columns(dtype, weight, False),
        Scalar("eps", wide),
        Scalar("share", wide),
        _out(dtype),
        Array("rstds", wide, "row", writes=True),
    )
    steps = (
        Loop((Reduce("squares", "sum", _X * _X),)),
        Let("rstd", rsqrt(var("squares") * var("share") + var("eps"))),
        Put("rstds", var("rstd")),
        Loop((Store("out", _affine(_X * var("rstd"), weight, False)),)),
    )
    return Kernel("rms_norm", params, steps)


def _rms_norm_backward(dtype: str, weight: bool) -> Kernel:
    wide = _wide(dtype)
    rstd = var("rstd")
    hat = _X * rstd
    g = _G * var("weight") if weight else _G
    params = (
        Array("g", dtype),
        Array("x", dtype),
        Array("rstd", wide, "row"),
        *_columns(dtype, weight, False),
        Scalar("share", wide),
        _out(dtype),
        *([Array("dweight", wide, "col", writes=True)] if weight else []),
    )
    extra = (Store("dweight", _G * hat, add=True),) if weight else ()
    steps = (
        Loop((Reduce("b", "sum", g * hat), *extra)),
        Let("b_mean", var("b") * var("share")),
        Loop((Store("out", rstd * (g - hat * var("b_mean"))),)),
    )
    return Kernel("rms_norm_backward", params, steps)


_LAYER_NORM = {
    (w, b): Family(lambda dtype, w=w, b=b: _layer_norm(dtype, w, b))
    for w, b in ((True, True), (True, False), (False, False), (False, True))
}
_LAYER_NORM_BACKWARD = {
    w: Family(lambda dtype, w=w: _layer_norm_backward(dtype, w)) for w in (True, False)
}
_RMS_NORM = {w: Family(lambda dtype, w=w: _rms_norm(dtype, w)) for w in (True, False)}
_RMS_NORM_BACKWARD = {
    w: Family(lambda dtype, w=w: _rms_norm_backward(dtype, w)) for w in (True, False)
}


def _statistics(x: np.ndarray) -> np.ndarray:
    return np.empty(x.shape[:-1], np.float64 if x.dtype == np.float64 else np.float32)


def layer_norm(
    x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, eps: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(x - mean) * rstd * weight + bias over the last axis; returns it, mean and rstd.

    ``weight`` and ``bias`` have the type of ``x`` and one element per column. ``rstd`` is
    1 / sqrt(variance + eps); the variance divides by the number of columns, in two passes.
    """
    out, mean, rstd = np.empty(x.shape, x.dtype), _statistics(x), _statistics(x)
    args = [x, *(a for a in (weight, bias) if a is not None)]
    args += [float(eps), 1.0 / max(x.shape[-1], 1), out, mean, rstd]
    _LAYER_NORM[weight is not None, bias is not None][x.dtype](*args)
    return out, mean, rstd


def layer_norm_backward(
    g: np.ndarray, x: np.ndarray, mean: np.ndarray, rstd: np.ndarray, weight: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Gradients of ``x``, ``weight`` and ``bias`` (the latter None without a weight)."""
    program, share = _LAYER_NORM_BACKWARD[weight is not None][x.dtype], 1.0 / max(x.shape[-1], 1)
    dx = np.empty(x.shape, x.dtype)
    if weight is None:
        program(g, x, mean, rstd, share, dx)
        return dx, None, None
    rows = _rows(g, x, dx)
    n = max(-(-len(rows[0]) // _BLOCK), 1)
    sums = np.zeros((2, n, x.shape[-1]), mean.dtype)
    mean, rstd = mean.reshape(-1), rstd.reshape(-1)
    for k in range(n):
        part = slice(k * _BLOCK, (k + 1) * _BLOCK)
        gk, xk, dxk = (a[part] for a in rows)
        program(gk, xk, mean[part], rstd[part], weight, share, dxk, sums[0, k], sums[1, k])
    dweight, dbias = sums.sum(axis=1).astype(weight.dtype, copy=False)
    return dx, dweight, dbias


def rms_norm(x: np.ndarray, weight: np.ndarray | None, eps: float) -> tuple[np.ndarray, np.ndarray]:
    """x * rstd * weight over the last axis, rstd = 1 / sqrt(mean(x**2) + eps); returns both."""
    out, rstd = np.empty(x.shape, x.dtype), _statistics(x)
    args = [x, *(() if weight is None else (weight,))]
    _RMS_NORM[weight is not None][x.dtype](*args, float(eps), 1.0 / max(x.shape[-1], 1), out, rstd)
    return out, rstd


def rms_norm_backward(
    g: np.ndarray, x: np.ndarray, rstd: np.ndarray, weight: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Gradients of ``x`` and ``weight``."""
    program, share = _RMS_NORM_BACKWARD[weight is not None][x.dtype], 1.0 / max(x.shape[-1], 1)
    dx = np.empty(x.shape, x.dtype)
    if weight is None:
        program(g, x, rstd, share, dx)
        return dx, None
    rows = _rows(g, x, dx)
    n = max(-(-len(rows[0]) // _BLOCK), 1)
    sums, rstd = np.zeros((n, x.shape[-1]), rstd.dtype), rstd.reshape(-1)
    for k in range(n):
        part = slice(k * _BLOCK, (k + 1) * _BLOCK)
        gk, xk, dxk = (a[part] for a in rows)
        program(gk, xk, rstd[part], weight, share, dxk, sums[k])
    return dx, sums.sum(axis=0).astype(weight.dtype, copy=False)


def _rows(*arrays: np.ndarray) -> list[np.ndarray]:
    """Arrays as (rows, columns); the last one is written to and contiguous, so it is a view."""
    return [a.reshape(math.prod(a.shape[:-1]), a.shape[-1]) for a in arrays]


# -- cross entropy -------------------------------------------------------------------------------


def _cross_entropy(dtype: str, weighted: bool, smooth: bool) -> Kernel:
    """Per row: lse - x[t], or with smoothing e: (1-e) w[t] (lse - x[t]) + e/C sum(w (lse - x))."""
    wide, t, lse = _wide(dtype), var("target"), var("lse")
    own = lse - load("x", t)
    weight = load("weight", t) if weighted else None
    each = var("weight") * (lse - _X) if weighted else lse - _X
    loss = weight * own if weight is not None else own
    rest = (Loop((Reduce("rest", "sum", each),)),) if smooth else ()
    if smooth:
        loss = (1 - var("smoothing")) * loss + var("smoothing") * var("share") * var("rest")
    counted = ne(t, var("ignore"))
    params = (
        Array("x", dtype),
        Array("target", "int64", "row"),
        *_columns(dtype, weighted, False),
        Scalar("ignore", "int64"),
        *((Scalar("smoothing", wide), Scalar("share", wide)) if smooth else ()),
        Array("losses", wide, "row", writes=True),
        Array("lses", wide, "row", writes=True),
        Array("totals", "float64", "one", writes=True),
        Array("counts", "float64", "one", writes=True),
    )
    steps = (
        Loop((Reduce("max", "maxnum", _X),)),
        Loop((Reduce("sum", "sum", exp(_X - _MAX)),)),
        Let("lse", _MAX + log(var("sum"))),
        *rest,
        Let("loss", where(counted, loss, 0.0)),
        Put("losses", var("loss")),
        Put("lses", lse),
        Put("totals", var("loss"), add=True),
        Put("counts", where(counted, 1.0 if weight is None else weight, 0.0), add=True),
    )
    return Kernel("cross_entropy", params, steps)


def _cross_entropy_backward(dtype: str, weighted: bool, smooth: bool, each: bool) -> Kernel:
    wide, t, lse = _wide(dtype), var("target"), var("lse")
    p, hit = exp(_X - lse), where(eq(index(), t), 1.0, 0.0)
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
        Array("lse", wide, "row"),
        *_columns(dtype, weighted, False),
        Scalar("ignore", "int64"),
        *([Scalar(n, wide) for n in ("smoothing", "share", "weight_sum")] if smooth else ()),
        _out(dtype),
    )
    steps = (
        Let("scale", where(ne(t, var("ignore")), _G, 0.0)),
        Loop((Store("out", where(eq(var("scale"), 0.0), 0.0, var("scale") * value)),)),
    )
    return Kernel("cross_entropy_backward", params, steps)


_FLAGS = [(w, s) for w in (False, True) for s in (False, True)]
_CROSS_ENTROPY = {
    (w, s): Family(lambda dtype, w=w, s=s: _cross_entropy(dtype, w, s)) for w, s in _FLAGS
}
_CROSS_ENTROPY_BACKWARD = {
    (w, s, e): Family(lambda dtype, w=w, s=s, e=e: _cross_entropy_backward(dtype, w, s, e))
    for w, s in _FLAGS
    for e in (False, True)
}


def cross_entropy(
    logits: np.ndarray,
    target: np.ndarray,
    weight: np.ndarray | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Losses per row of (N, C) logits for (N,) int64 targets.

    Returns the N losses (0 where ignored), the N log-sum-exps that the backward function needs,
    the sum of the losses, and the sum of the weights of the rows that count (their number without
    ``weight``): the mean loss is sum / weights. Raises ``DimError`` for a target out of range.
    """
    smooth = label_smoothing != 0.0
    n, c = logits.shape
    wide = np.float64 if logits.dtype == np.float64 else np.float32
    losses, lse = np.empty((2, n), wide)
    sums = np.zeros((2, 1))
    args = [logits, target, *(() if weight is None else (weight,)), float(ignore_index)]
    args += [float(label_smoothing), 1.0 / max(c, 1)] if smooth else []
    _CROSS_ENTROPY[weight is not None, smooth][logits.dtype](*args, losses, lse, sums[0], sums[1])
    total, count = float(sums[0, 0]), float(sums[1, 0])
    if total != total or count != count:
        _check_targets(target, ignore_index, c)
    return losses, lse, total, count


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
    each = isinstance(g, np.ndarray) and g.ndim > 0
    out = np.empty(logits.shape, logits.dtype)
    args = [logits, target, lse, *(() if weight is None else (weight,)), float(ignore_index)]
    if smooth:
        weights = c if weight is None else weight.sum(dtype=np.float64)
        args += [float(label_smoothing), 1.0 / max(c, 1), float(weights)]
    program = _CROSS_ENTROPY_BACKWARD[weight is not None, smooth, each][logits.dtype]
    program(g if each else float(g), *args, out)
    return out
