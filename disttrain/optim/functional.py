"""Optimizers as pure functions of tensors: what a step makes of a parameter and of what is kept
beside it. Nothing is changed in place, so they are captured, mapped and differentiated as other
functions are.

    new = RULES["adam"].update(step, rate, gradient, (x, m, v), b1=0.9)

A ``Rule`` says how many tensors like the parameter are kept (they begin as zeros). ``rate``: a
number or a tensor; ``step``: counts from 0. And schedules of rates, functions of the step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from ..core.tensor import Tensor
from ..errors import ConfigError
from ..ops import api as t

State = tuple[Any, ...]


class Rule(NamedTuple):
    """How many tensors are kept, and ``update(step, rate, g, state, ...) -> state``."""

    slots: int
    update: Callable[..., State]


def _sgd(step: Any, rate: Any, g: Tensor, state: State) -> State:
    return (state[0] - rate * g,)


def _momentum(step: Any, rate: Any, g: Tensor, state: State, mass: float) -> State:
    v = mass * state[1] + g
    return state[0] - rate * v, v


def _nesterov(step: Any, rate: Any, g: Tensor, state: State, mass: float) -> State:
    v = mass * state[1] + g
    return state[0] - rate * (mass * v + g), v


def _inverse_root(total: Tensor) -> Any:
    return t.where(total > 0, t.rsqrt(total), t.zeros_like(total))


def _adagrad(step: Any, rate: Any, g: Tensor, state: State, momentum: float = 0.9) -> State:
    x, total, m = state
    total = total + g * g
    m = (1.0 - momentum) * (g * _inverse_root(total)) + momentum * m
    return x - rate * m, total, m


def _rmsprop(
    step: Any, rate: Any, g: Tensor, state: State, gamma: float = 0.9, eps: float = 1e-8
) -> State:
    mean = state[1] * gamma + g * g * (1.0 - gamma)
    return state[0] - rate * g / t.sqrt(mean + eps), mean


def _rmsprop_momentum(
    step: Any, rate: Any, g: Tensor, state: State, gamma: float = 0.9, eps: float = 1e-8,
    momentum: float = 0.9,
) -> State:  # fmt: skip
    x, mean, v = state
    mean = mean * gamma + g * g * (1.0 - gamma)
    v = momentum * v + rate * g / t.sqrt(mean + eps)
    return x - v, mean, v


def _corrected(beta: float, step: Any, like: Tensor) -> Any:
    """1 - βⁿ of step n, in the type of ``like``."""
    return 1 - t.full((), beta, dtype=like.dtype) ** (step + 1)


def _adam(
    step: Any, rate: Any, g: Tensor, state: State, b1: float = 0.9, b2: float = 0.999,
    eps: float = 1e-8,
) -> State:  # fmt: skip
    x, m, v = state
    m, v = (1 - b1) * g + b1 * m, (1 - b2) * (g * g) + b2 * v
    mean, square = m / _corrected(b1, step, m), v / _corrected(b2, step, m)
    return x - rate * mean / (t.sqrt(square) + eps), m, v


def _adamax(
    step: Any, rate: Any, g: Tensor, state: State, b1: float = 0.9, b2: float = 0.999,
    eps: float = 1e-8,
) -> State:  # fmt: skip
    x, m, most = state
    m, most = (1 - b1) * g + b1 * m, t.maximum(b2 * most, t.abs(g))
    return x - rate / _corrected(b1, step, m) * m / (most + eps), m, most


def sm3_state(x: Tensor) -> State:
    """The parameter (with a dimension at least), its momentum, a sum for each index of each
    dimension, and its shape."""
    shape, x = tuple(x.shape), x if x.ndim else x.reshape(1)
    return x, t.zeros_like(x), [t.zeros(n, dtype=x.dtype) for n in x.shape], shape


def _sm3(step: Any, rate: Any, g: Tensor, state: State, momentum: float = 0.9) -> State:
    x, m, sums, shape = state
    g = g.reshape(x.shape)
    lines = [s.reshape([-1 if d == k else 1 for d in range(x.ndim)]) for k, s in enumerate(sums)]
    total = reduce(t.minimum, lines) + g * g
    m = (1.0 - momentum) * (g * _inverse_root(total)) + momentum * m
    others = [tuple(d for d in range(x.ndim) if d != k) for k in range(x.ndim)]
    return x - rate * m, m, [total.amax(o) if o else total for o in others], shape


# Sources: Nesterov 1983; Duchi et al. 2011; Tieleman and Hinton 2012; Kingma and Ba 2015; Anil et
# al., Memory-efficient adaptive optimization, 2019 (SM3).
RULES = {
    "sgd": Rule(0, _sgd), "momentum": Rule(1, _momentum), "nesterov": Rule(1, _nesterov),
    "adagrad": Rule(2, _adagrad), "rmsprop": Rule(1, _rmsprop),
    "rmsprop_momentum": Rule(2, _rmsprop_momentum), "adam": Rule(2, _adam),
    "adamax": Rule(2, _adamax), "sm3": Rule(-1, _sm3),
}  # fmt: skip


def begin(name: str, x: Tensor) -> State:
    """The state of the parameter ``x`` before the first step."""
    if name not in RULES:
        raise ConfigError(f"optim.functional: {name!r} given; there are {', '.join(RULES)}")
    return sm3_state(x) if name == "sm3" else (x, *(t.zeros_like(x) for _ in range(RULES[name][0])))


# --- schedules ------------------------------------------------------------------------------------
Schedule = Callable[[Any], Any]


def constant(step_size: Any) -> Schedule:
    """Always the same."""
    return lambda i: step_size


def schedule(rate: Any) -> Schedule:
    """A schedule of what is one, or of a number."""
    if callable(rate):
        return rate  # type: ignore[no-any-return]
    if np.ndim(rate):
        raise TypeError(type(rate))
    return constant(rate)


def piecewise_constant(boundaries: Any, values: Any) -> Schedule:
    """``values`` between ``boundaries``, both of one dimension."""
    if not boundaries.ndim == values.ndim == 1:
        raise ValueError("boundaries and values must be sequences")
    if boundaries.shape[0] != values.shape[0] - 1:
        raise ValueError("boundaries length must be one shorter than values length")
    return lambda i: values[(i > boundaries).sum()]


def exponential_decay(step_size: Any, decay_steps: Any, decay_rate: Any) -> Schedule:
    """``decay_rate`` for each ``decay_steps``."""
    return lambda i: step_size * decay_rate ** (i / decay_steps)


def inverse_time_decay(
    step_size: Any, decay_steps: Any, decay_rate: Any, staircase: bool = False
) -> Schedule:
    """By one over the time; ``staircase``: only at whole multiples of ``decay_steps``."""
    if staircase:
        return lambda i: step_size / (1 + decay_rate * (i // decay_steps))
    return lambda i: step_size / (1 + decay_rate * i / decay_steps)


def polynomial_decay(
    step_size: Any, decay_steps: Any, final_step_size: Any, power: float = 1.0
) -> Schedule:
    """To ``final_step_size`` by a power of the time that is left."""

    def schedule(i: Any) -> Any:
        left = (decay_steps - i) / decay_steps
        left = left * (left > 0)
        return left**power * (step_size - final_step_size) + final_step_size

    return schedule
