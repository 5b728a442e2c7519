"""Optimizer steps on arrays, in place: one pass over memory for each.

    adam_scalars(lr, beta1, beta2, eps, weight_decay, step, decoupled, maximize) -> scalars
    adam(p, g, m, v, max_v, scalars)
    sgd(p, g, buf, lr, momentum, dampening, weight_decay, nesterov, maximize)
    adagrad(p, g, total, rate, eps, weight_decay, maximize)
    adadelta(p, g, square, delta, lr, rho, eps, weight_decay, maximize)
    rmsprop(p, g, square, mean, buf, lr, alpha, eps, weight_decay, momentum, maximize)

The arrays are of one shape and type. The formulas are those of the papers, in PyTorch's order of
operations, so that results agree to rounding.
"""

from __future__ import annotations

import functools
import math
from functools import partial

import numpy as np

from ..family import Family
from ..lang.expr import Expr, max, sqrt, var
from ..lang.kernel import Array, Kernel, Loop, Scalar, Store, wide_type

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
    names = ["m", "v"] + (["max_v"] if amsgrad else [])
    if amsgrad:
        stores.append(Store("max_v", largest))
    return _update("adam", dtype, tuple(names), _ADAM_SCALARS, tuple(stores))


def _sgd(dtype: str, momentum: bool, nesterov: bool) -> Kernel:
    g = _G * var("sign") + _P * var("decay")
    buf = var("buf") * var("momentum") + g * var("take")
    step = (g + var("momentum") * buf if nesterov else buf) if momentum else g
    stores = [Store("p", _P - var("lr") * step)]
    names = ["sign", "decay", "lr"]
    if momentum:
        stores.insert(0, Store("buf", buf))
        names += ["momentum", "take"]
    state = ("buf",) if momentum else ()
    return _update("sgd", dtype, state, tuple(names), tuple(stores))


_ADAM = {a: Family(partial(_adam, amsgrad=a)) for a in (False, True)}
_SGD = {
    (m, n): Family(partial(_sgd, momentum=m, nesterov=n))
    for m, n in ((False, False), (True, False), (True, True))
}


def _gradient() -> Expr:
    return _G * var("sign") + _P * var("decay")


def _adagrad(dtype: str) -> Kernel:
    """Duchi, Hazan and Singer 2011."""
    g = _gradient()
    total = var("total") + g * g
    stores = (
        Store("total", total),
        Store("p", _P - var("rate") * g / (sqrt(total) + var("eps"))),
    )
    return _update("adagrad", dtype, ("total",), ("rate", "eps", "sign", "decay"), stores)


def _adadelta(dtype: str) -> Kernel:
    """Zeiler 2012."""
    g, rho = _gradient(), var("rho")
    square = var("square") * rho + g * g * (1 - rho)
    delta = sqrt(var("delta") + var("eps")) / sqrt(square + var("eps")) * g
    stores = (
        Store("square", square),
        Store("delta", var("delta") * rho + delta * delta * (1 - rho)),
        Store("p", _P - var("lr") * delta),
    )
    scalars = ("lr", "rho", "eps", "sign", "decay")
    return _update("adadelta", dtype, ("square", "delta"), scalars, stores)


def _rmsprop(dtype: str, centered: bool, momentum: bool) -> Kernel:
    """Hinton's lecture 6e (2012); ``centered`` as in Graves 2013."""
    g, alpha = _gradient(), var("alpha")
    square = var("square") * alpha + g * g * (1 - alpha)
    stores = [Store("square", square)]
    names = ["square"]
    spread = square
    if centered:
        mean = var("mean") + (g - var("mean")) * (1 - alpha)
        stores.append(Store("mean", mean))
        names.append("mean")
        spread = square - mean * mean
    step = g / (sqrt(spread) + var("eps"))
    if momentum:
        step = var("buf") * var("momentum") + step
        stores.append(Store("buf", step))
        names.append("buf")
    stores.append(Store("p", _P - var("lr") * step))
    scalars = ("lr", "alpha", "eps", "sign", "decay") + (("momentum",) if momentum else ())
    return _update("rmsprop", dtype, tuple(names), scalars, tuple(stores))


def _update(
    name: str,
    dtype: str,
    state: tuple[str, ...],
    scalars: tuple[str, ...],
    stores: tuple[Store, ...],
) -> Kernel:
    params: list[Array | Scalar] = [Array("p", dtype, writes=True), Array("g", dtype)]
    params += [Array(s, dtype, writes=True) for s in state]
    params += [Scalar(s, wide_type(dtype)) for s in scalars]
    return Kernel(name, tuple(params), (Loop(stores),), flat=True)


_ADAGRAD = Family(_adagrad)
_ADADELTA = Family(_adadelta)
_RMSPROP = {
    (c, m): Family(partial(_rmsprop, centered=c, momentum=m))
    for c in (False, True)
    for m in (False, True)
}


@functools.lru_cache(maxsize=256)
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
) -> None:
    """One step of stochastic gradient descent; without the buffer ``buf`` there is no momentum."""
    scalars = (-1.0 if maximize else 1.0, float(weight_decay), float(lr))
    if buf is None:
        run = _SGD[False, False][p.dtype]
        run.fast(p, g, *scalars) is None and run.slow(p, g, *scalars)
        return
    run = _SGD[True, nesterov][p.dtype]
    more = (*scalars, float(momentum), 1.0 - dampening)
    run.fast(p, g, buf, *more) is None and run.slow(p, g, buf, *more)


def adagrad(
    p: np.ndarray,
    g: np.ndarray,
    total: np.ndarray,
    rate: float,
    eps: float,
    weight_decay: float = 0.0,
    maximize: bool = False,
) -> None:
    """One step of Adagrad; ``rate`` is the learning rate after its decay."""
    scalars = (float(rate), float(eps), -1.0 if maximize else 1.0, float(weight_decay))
    _ADAGRAD[p.dtype](p, g, total, *scalars)


def adadelta(
    p: np.ndarray,
    g: np.ndarray,
    square: np.ndarray,
    delta: np.ndarray,
    lr: float,
    rho: float,
    eps: float,
    weight_decay: float = 0.0,
    maximize: bool = False,
) -> None:
    """One step of Adadelta."""
    scalars = (float(lr), float(rho), float(eps), -1.0 if maximize else 1.0, float(weight_decay))
    _ADADELTA[p.dtype](p, g, square, delta, *scalars)


def rmsprop(
    p: np.ndarray,
    g: np.ndarray,
    square: np.ndarray,
    mean: np.ndarray | None,
    buf: np.ndarray | None,
    lr: float,
    alpha: float,
    eps: float,
    weight_decay: float = 0.0,
    momentum: float = 0.0,
    maximize: bool = False,
) -> None:
    """One step of RMSprop, centered if there is a ``mean``, with momentum if there is a ``buf``."""
    state = [a for a in (square, mean, buf) if a is not None]
    scalars = [lr, alpha, eps, -1.0 if maximize else 1.0, weight_decay]
    scalars += [] if buf is None else [momentum]
    run = _RMSPROP[mean is not None, buf is not None][p.dtype]
    run(p, g, *state, *map(float, scalars))
