"""Optimizer steps on arrays, in place: one pass over memory for each.

    ADAM[amsgrad](p, g, m, v, *numbers)

An ``Update`` names the arrays that it changes beside the parameter ``p`` (after the gradient ``g``)
and the numbers it takes, and says by expressions what it writes. All arrays are of one shape and
type. The formulas are those of the papers, in PyTorch's order of operations, so that results agree
to rounding. Which numbers a step takes is said where the optimizers are (``optim/rules.py``).

``sign`` is -1 to go up instead of down; ``decay`` the weight decay that is added to the gradient;
``keep`` what is left of the parameter after a decoupled decay.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..family import Family
from ..lang.expr import Expr, abs, eq, max, min, sqrt, var, where
from ..lang.kernel import Array, Kernel, Loop, Scalar, Store, wide_type


class Update:
    """One elementwise update, with a kernel for each element type."""

    def __init__(self, name: str, state: str, scalars: str, **stores: Expr) -> None:
        self.name = name
        self.state, self.scalars = tuple(state.split()), tuple(scalars.split())
        self.stores = tuple(Store(array, value) for array, value in stores.items())
        self.programs = Family(self.kernel)

    def kernel(self, dtype: str) -> Kernel:
        """The kernel for arrays of that type; numbers are of the wider type that goes with it."""
        params: list[Array | Scalar] = [Array("p", dtype, writes=True), Array("g", dtype)]
        params += [Array(s, dtype, writes=True) for s in self.state]
        params += [Scalar(s, wide_type(dtype)) for s in self.scalars]
        return Kernel(self.name, tuple(params), (Loop(self.stores),), flat=True)

    def __call__(self, p: np.ndarray, g: np.ndarray, *rest: Any) -> None:
        run = self.programs[p.dtype]
        run.fast(p, g, *rest) is None and run.slow(p, g, *rest)


_P, _G, _M, _V = var("p"), var("g"), var("m"), var("v")
_EPS = var("eps")
_GRADIENT = _G * var("sign") + _P * var("decay")

# The Adam family: the parameter after decoupled decay, the gradient, and the two moments.
_KEPT = _P * var("keep")
_ADAM_G = _G * var("sign") + _KEPT * var("decay")
_MEAN = _M + (_ADAM_G - _M) * var("one_minus_beta1")
_SQUARE = _V * var("beta2") + _ADAM_G * _ADAM_G * var("one_minus_beta2")
_MOMENTS = "sign keep decay one_minus_beta1 beta2 one_minus_beta2"


def _adam(amsgrad: bool) -> Update:
    largest = max(var("max_v"), _SQUARE) if amsgrad else _SQUARE
    p = _KEPT - var("step_size") * _MEAN / (sqrt(largest) * var("root_scale") + _EPS)
    stores = {"p": p, "m": _MEAN, "v": _SQUARE}
    state = "m v"
    if amsgrad:
        stores["max_v"], state = largest, "m v max_v"
    return Update("adam", state, f"{_MOMENTS} step_size root_scale eps", **stores)


# Kingma and Ba 2015; with decoupled decay Loshchilov and Hutter 2019; AMSGrad: Reddi et al. 2018.
ADAM = {a: _adam(a) for a in (False, True)}

_NADAM_SPREAD = sqrt(_SQUARE / var("correction2")) + _EPS
NADAM = Update(  # Dozat 2016
    "nadam",
    "m v",
    f"{_MOMENTS} correction2 eps gradient_size mean_size",
    p=_KEPT
    - var("gradient_size") * _ADAM_G / _NADAM_SPREAD
    - var("mean_size") * _MEAN / _NADAM_SPREAD,
    m=_MEAN,
    v=_SQUARE,
)
RADAM = Update(  # Liu et al. 2020; ``rectified`` is 1 once the variance can be told, 0 before
    "radam",
    "m v",
    f"{_MOMENTS} eps step_size rectified",
    p=_KEPT - var("step_size") * _MEAN / where(var("rectified") > 0.5, sqrt(_SQUARE) + _EPS, 1.0),
    m=_MEAN,
    v=_SQUARE,
)
_ADAMAX_MEAN = _M + (_GRADIENT - _M) * var("one_minus_beta1")
_LARGEST = max(var("u") * var("beta2"), abs(_GRADIENT) + _EPS)
ADAMAX = Update(  # Kingma and Ba 2015, section 7.1
    "adamax",
    "m u",
    "sign decay one_minus_beta1 beta2 eps step_size",
    p=_P - var("step_size") * _ADAMAX_MEAN / _LARGEST,
    m=_ADAMAX_MEAN,
    u=_LARGEST,
)


def _sgd(momentum: bool, nesterov: bool) -> Update:
    g = _GRADIENT
    if not momentum:
        return Update("sgd", "", "sign decay lr", p=_P - var("lr") * g)
    buf = var("buf") * var("momentum") + g * var("take")
    step = g + var("momentum") * buf if nesterov else buf
    scalars = "sign decay lr momentum take"
    return Update("sgd", "buf", scalars, buf=buf, p=_P - var("lr") * step)


SGD = {(m, n): _sgd(m, n) for m, n in ((False, False), (True, False), (True, True))}

_TOTAL = var("total") + _GRADIENT * _GRADIENT
ADAGRAD = Update(  # Duchi, Hazan and Singer 2011
    "adagrad",
    "total",
    "rate eps sign decay",
    total=_TOTAL,
    p=_P - var("rate") * _GRADIENT / (sqrt(_TOTAL) + _EPS),
)
_RHO = var("rho")
_DELTA_SQUARE = var("square") * _RHO + _GRADIENT * _GRADIENT * (1 - _RHO)
_DELTA = sqrt(var("delta") + _EPS) / sqrt(_DELTA_SQUARE + _EPS) * _GRADIENT
ADADELTA = Update(  # Zeiler 2012
    "adadelta",
    "square delta",
    "lr rho eps sign decay",
    square=_DELTA_SQUARE,
    delta=var("delta") * _RHO + _DELTA * _DELTA * (1 - _RHO),
    p=_P - var("lr") * _DELTA,
)


def _rmsprop(centered: bool, momentum: bool) -> Update:
    """Hinton's lecture 6e (2012); ``centered`` as in Graves 2013."""
    g, alpha = _GRADIENT, var("alpha")
    spread = square = var("square") * alpha + g * g * (1 - alpha)
    stores = {"square": square}
    if centered:
        mean = var("mean") + (g - var("mean")) * (1 - alpha)
        stores["mean"] = mean
        spread = square - mean * mean
    step = g / (sqrt(spread) + _EPS)
    scalars = "lr alpha eps sign decay"
    if momentum:
        step = var("buf") * var("momentum") + step
        stores["buf"] = step
        scalars += " momentum"
    state = " ".join(stores)
    return Update("rmsprop", state, scalars, **stores, p=_P - var("lr") * step)


RMSPROP = {(c, m): _rmsprop(c, m) for c in (False, True) for m in (False, True)}

_MOVED = _P * var("keep") - var("eta") * _GRADIENT
ASGD = Update(  # Polyak and Juditsky 1992; ``average`` is 1 until averaging begins
    "asgd",
    "ax",
    "sign decay keep eta average",
    p=_MOVED,
    ax=where(eq(var("average"), 1.0), _MOVED, var("ax") + (_MOVED - var("ax")) * var("average")),
)


def _sign(x: Expr) -> Expr:
    return where(x > 0, 1.0, where(x < 0, -1.0, 0.0))


_RPROP_G = _G * var("sign")
_TURN = _RPROP_G * var("prev")
_FACTOR = where(_TURN > 0, var("eta_plus"), where(_TURN < 0, var("eta_minus"), 1.0))
_STEP_SIZE = min(max(var("step_size") * _FACTOR, var("smallest")), var("largest"))
_TAKEN = where(_TURN < 0, 0.0, _RPROP_G)
RPROP = Update(  # Riedmiller and Braun 1993, without going back
    "rprop",
    "prev step_size",
    "sign eta_minus eta_plus smallest largest",
    p=_P - _sign(_TAKEN) * _STEP_SIZE,
    prev=_TAKEN,
    step_size=_STEP_SIZE,
)
