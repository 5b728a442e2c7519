"""Optimizer steps on arrays, in place: one pass over memory for each.

    adam_scalars(lr, beta1, beta2, eps, weight_decay, step, decoupled, maximize) -> scalars
    adam(p, g, m, v, max_v, scalars)
    sgd(p, g, buf, lr, momentum, dampening, weight_decay, nesterov, maximize, first)

The arrays are of one shape and type. The formulas are those of the papers, in PyTorch's order of
operations, so that results agree to rounding.
"""

from __future__ import annotations

import math

import numpy as np

from .expr import Expr, max, sqrt, var
from .kernel import Array, Kernel, Loop, Scalar, Store, wide_type
from .program import Family

_P, _G, _M, _V = var("p"), var("g"), var("m"), var("v")
_ADAM_SCALARS = (
    "sign",
    "keep",
    "decay",
    "one_minus_beta1",
    "beta2",
    "one_minus_beta2",
    "step_size",
    "root_scale",
    "eps",
)


def _scalars(dtype: str, names: tuple[str, ...]) -> tuple[Scalar, ...]:
    return tuple(Scalar(name, wide_type(dtype)) for name in names)


def _adam(dtype: str, amsgrad: bool) -> Kernel:
    """Adam (Kingma and Ba 2015), AdamW (Loshchilov and Hutter 2019), AMSGrad (Reddi et al. 2018).

    ``keep`` is 1 - lr * weight_decay for AdamW and 1 for Adam, ``decay`` 0 and weight_decay.
    """
    p = _P * var("keep")
    g = _G * var("sign") + p * var("decay")
    m = _M + (g - _M) * var("one_minus_beta1")
    v = _V * var("beta2") + g * g * var("one_minus_beta2")
    largest: Expr = max(var("max_v"), v) if amsgrad else v
    p = p - var("step_size") * m / (sqrt(largest) * var("root_scale") + var("eps"))
    stores = [Store("p", p), Store("m", m), Store("v", v)]
    arrays = [Array("p", dtype, writes=True), Array("g", dtype)]
    names = ["m", "v"] + (["max_v"] if amsgrad else [])
    arrays += [Array(n, dtype, writes=True) for n in names]
    if amsgrad:
        stores.append(Store("max_v", largest))
    params = (*arrays, *_scalars(dtype, _ADAM_SCALARS))
    return Kernel("adam", params, (Loop(tuple(stores)),), flat=True)


def _sgd(dtype: str, momentum: bool, nesterov: bool) -> Kernel:
    g = _G * var("sign") + _P * var("decay")
    buf = var("buf") * var("keep") + g * var("take")
    step = (g + var("momentum") * buf if nesterov else buf) if momentum else g
    stores = [Store("p", _P - var("lr") * step)]
    arrays = [Array("p", dtype, writes=True), Array("g", dtype)]
    names = ["sign", "decay", "lr"]
    if momentum:
        stores.insert(0, Store("buf", buf))
        arrays.append(Array("buf", dtype, writes=True))
        names += ["keep", "take", "momentum"]
    params = (*arrays, *_scalars(dtype, tuple(names)))
    return Kernel("sgd", params, (Loop(tuple(stores)),), flat=True)


_ADAM = {a: Family(lambda dtype, a=a: _adam(dtype, a)) for a in (False, True)}
_SGD = {
    (m, n): Family(lambda dtype, m=m, n=n: _sgd(dtype, m, n))
    for m, n in ((False, False), (True, False), (True, True))
}


def adam_scalars(
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    step: int,
    decoupled: bool,
    maximize: bool,
) -> tuple[float, ...]:
    """The numbers that the kernel takes; the same for all parameters at one step."""
    keep = 1.0 - lr * weight_decay if decoupled else 1.0
    return (
        -1.0 if maximize else 1.0,
        float(keep),
        0.0 if decoupled else float(weight_decay),
        1.0 - beta1,
        float(beta2),
        1.0 - beta2,
        lr / (1.0 - beta1**step),
        1.0 / math.sqrt(1.0 - beta2**step),
        float(eps),
    )


def adam(
    p: np.ndarray,
    g: np.ndarray,
    m: np.ndarray,
    v: np.ndarray,
    max_v: np.ndarray | None,
    scalars: tuple[float, ...],
) -> None:
    """One step of Adam, AdamW or AMSGrad (with ``max_v``); ``scalars`` from ``adam_scalars``."""
    if max_v is None:
        run = _ADAM[False][p.dtype]
        run.fast(p, g, m, v, *scalars) is None and run.slow(p, g, m, v, *scalars)
    else:
        _ADAM[True][p.dtype](p, g, m, v, max_v, *scalars)


def sgd(
    p: np.ndarray,
    g: np.ndarray,
    buf: np.ndarray | None,
    lr: float,
    momentum: float = 0.0,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
    maximize: bool = False,
    first: bool = False,
) -> None:
    """One step of stochastic gradient descent. ``buf`` (zeros before the ``first`` step) is the
    momentum buffer; without one there is no momentum."""
    scalars = (-1.0 if maximize else 1.0, float(weight_decay), float(lr))
    if buf is None:
        run = _SGD[False, False][p.dtype]
        run.fast(p, g, *scalars) is None and run.slow(p, g, *scalars)
        return
    keep, take = (0.0, 1.0) if first else (float(momentum), 1.0 - dampening)
    run = _SGD[True, nesterov][p.dtype]
    scalars = (*scalars, keep, take, float(momentum))
    run.fast(p, g, buf, *scalars) is None and run.slow(p, g, buf, *scalars)
