"""Gradients by numeric differentiation, to hold the derivative rules against."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from disttrain.core import Tensor, grad, wrap


def _weights(shape: tuple, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def _central(f: Callable[..., float], arrays: list, i: int, eps: float) -> np.ndarray:
    x = arrays[i]
    out = np.zeros(x.shape)
    for at in np.ndindex(*x.shape):
        keep = x[at]
        x[at] = keep + eps
        up = f(arrays)
        x[at] = keep - eps
        down = f(arrays)
        x[at] = keep
        out[at] = (up - down) / (2 * eps)
    return out


def _first(fn: Callable, arrays: list, create_graph: bool) -> tuple[list, list]:
    inputs = [wrap(a.copy()).requires_grad_() for a in arrays]
    out = fn(*inputs)
    weights = wrap(_weights(tuple(out.shape)))
    grads = grad((out * weights).sum(), inputs, create_graph=create_graph, allow_unused=True)
    zeros = [wrap(np.zeros(a.shape)) for a in arrays]
    return inputs, [z if g is None else g for g, z in zip(grads, zeros, strict=True)]


def check_gradients(
    fn: Callable[..., Tensor],
    *arrays: Any,
    second: bool = True,
    eps: float = 1e-6,
    tol: float = 1e-5,
) -> None:
    """Compare the gradients of ``fn`` (float64 arrays to one Tensor) with numeric ones; with
    ``second`` also the gradients of those gradients."""
    arrays = [np.array(a, np.float64) for a in arrays]

    def value(current: list) -> float:
        out = fn(*[wrap(a.copy()) for a in current]).array
        return float((out * _weights(out.shape)).sum())

    for i, g in enumerate(_first(fn, arrays, False)[1]):
        np.testing.assert_allclose(g.array, _central(value, arrays, i, eps), rtol=tol, atol=tol)
    if second:
        _check_second(fn, arrays, eps, tol)


def _mix(grads: list) -> Any:
    total: Any = 0.0
    for k, g in enumerate(grads):
        total = total + (g * wrap(_weights(tuple(g.shape), 5 + k))).sum()
    return total


def _check_second(fn: Callable, arrays: list, eps: float, tol: float) -> None:
    def slope(current: list) -> float:
        return float(_mix(_first(fn, current, False)[1]).array)

    inputs, grads = _first(fn, arrays, True)
    total = _mix(grads)
    if total.requires_grad:
        got = grad(total, inputs, allow_unused=True)
    else:
        got = [None] * len(inputs)
    for i, g in enumerate(got):
        have = np.zeros(arrays[i].shape) if g is None else g.array
        np.testing.assert_allclose(have, _central(slope, arrays, i, eps), rtol=tol, atol=tol)
