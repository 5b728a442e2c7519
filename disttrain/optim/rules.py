"""Update rules as mutating primitives: one call changes a parameter and its state in place.

Each takes the parameter, its gradient and its state, ``step`` (a count of updates, kept as a tensor
so that a captured step counts on) last, and plain numbers by name. Nothing is recorded for
backward.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..backends.fused import updates as fused
from ..ops.declare import primitive


def _real(a: np.ndarray) -> np.ndarray:
    """Complex numbers as pairs of reals, over the same memory."""
    return a.view(a.real.dtype) if a.dtype.kind == "c" else a


def _reals(*arrays: np.ndarray) -> Any:
    return arrays if arrays[0].dtype.kind != "c" else tuple(_real(a) for a in arrays)


def _next(step: np.ndarray) -> int:
    count = int(step.item()) + 1
    step[...] = count
    return count


def _adam(
    p: Any, g: Any, m: Any, v: Any, step: Any, *, lr, beta1, beta2, eps, weight_decay,
    decoupled, maximize,
) -> tuple:  # fmt: skip
    numbers = fused.adam_scalars(
        lr, beta1, beta2, eps, weight_decay, _next(step), decoupled, maximize
    )
    p_, g_, m_, v_ = _reals(p, g, m, v)
    fused.adam(p_, g_, m_, v_, None, numbers)
    return p, m, v, step


def _amsgrad(
    p: Any, g: Any, m: Any, v: Any, max_v: Any, step: Any, *, lr, beta1, beta2, eps, weight_decay,
    decoupled, maximize,
) -> tuple:  # fmt: skip
    numbers = fused.adam_scalars(
        lr, beta1, beta2, eps, weight_decay, _next(step), decoupled, maximize
    )
    p_, g_, m_, v_, top = _reals(p, g, m, v, max_v)
    fused.adam(p_, g_, m_, v_, top, numbers)
    return p, m, v, max_v, step


def _sgd(p: Any, g: Any, *, lr, weight_decay, maximize) -> Any:
    p_, g_ = _reals(p, g)
    fused.sgd(p_, g_, None, lr, weight_decay=weight_decay, maximize=maximize)
    return (p,)


def _momentum(
    p: Any, g: Any, buf: Any, *, lr, momentum, dampening, weight_decay, nesterov, maximize
) -> tuple:
    p_, g_, buf_ = _reals(p, g, buf)
    fused.sgd(p_, g_, buf_, lr, momentum, dampening, weight_decay, nesterov, maximize)
    return p, buf


def _adagrad(
    p: Any, g: Any, total: Any, step: Any, *, lr, lr_decay, eps, weight_decay, maximize
) -> tuple:
    rate = lr / (1 + (_next(step) - 1) * lr_decay)
    p_, g_, total_ = _reals(p, g, total)
    fused.adagrad(p_, g_, total_, rate, eps, weight_decay, maximize)
    return p, total, step


def _adadelta(
    p: Any, g: Any, square: Any, delta: Any, step: Any, *, lr, rho, eps, weight_decay, maximize
) -> tuple:
    _next(step)
    p_, g_, square_, delta_ = _reals(p, g, square, delta)
    fused.adadelta(p_, g_, square_, delta_, lr, rho, eps, weight_decay, maximize)
    return p, square, delta, step


def _rmsprop(p: Any, g: Any, *state: Any, centered, momentum, **numbers: Any) -> tuple:
    *arrays, step = state
    _next(step)
    p_, g_, *views = _reals(p, g, *arrays)
    square, rest = views[0], views[1:]
    mean = rest.pop(0) if centered else None
    buf = rest.pop(0) if momentum else None
    fused.rmsprop(p_, g_, square, mean, buf, momentum=momentum, **numbers)
    return (p, *arrays, step)


def _rule(name: str, forward: Any, args: str, state: int) -> Any:
    """A primitive that changes its first argument and the ``state`` ones after the gradient."""
    return primitive(name, forward, args, multi=True, mutates=(0, *range(2, 2 + state)))


adam = _rule("adam_step", _adam, "p g m v step", 3)
amsgrad = _rule("amsgrad_step", _amsgrad, "p g m v max_v step", 4)
sgd = _rule("sgd_step", _sgd, "p g", 0)
momentum = _rule("momentum_step", _momentum, "p g buf", 1)
adagrad = _rule("adagrad_step", _adagrad, "p g total step", 2)
adadelta = _rule("adadelta_step", _adadelta, "p g square delta step", 3)
rmsprop = {
    (c, m): _rule(
        f"rmsprop_step{'_centered' * c}{'_momentum' * m}",
        _rmsprop,
        " ".join(["p g square", *["mean"] * c, *["buf"] * m, "step"]),
        2 + c + m,
    )
    for c in (False, True)
    for m in (False, True)
}
