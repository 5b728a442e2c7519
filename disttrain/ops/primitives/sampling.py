"""Primitives that draw from distributions of their arguments: gamma, Dirichlet, binomial and von
Mises numbers, the first two with derivatives by implicit differentiation.

A sample x of a distribution function F(x; a) moves with its parameter by dx/da = -(dF/da) / (dF/dx)
(Figurnov, Mohamed and Mnih, Implicit reparameterization gradients, 2018). dF/da is an integral of
(log t - E log t) times the density, up to x or from x on; of the two the one is taken whose
integrand keeps one sign, or, of small shapes, the one towards the near end. It is summed at doubly
exponentially spaced points (Takahasi and Mori, 1974), which an end with any power is no trouble
for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.gate import Primitive
from ...core.random import Generator
from ...errors import AutogradError
from ..declare import binary, primitive
from ..promotion import same_type_args
from .batching import front
from .elementwise import log
from .reduce import sum_
from .special import digamma_values, polygamma

_STEP = 0.075
_AT = np.arange(-4.5, 3.2, _STEP)
_POINTS = np.exp(np.pi / 2 * np.sinh(_AT))
_WEIGHTS = _STEP * np.pi / 2 * np.cosh(_AT) * _POINTS
_NEAR = 0.1  # how near to an end, for shapes and scales of 1, the integral is taken towards it
_LEAST = 1e-300  # what a sample that rounding took to an end counts as away from it

Curve = Callable[[np.ndarray], np.ndarray]


def _integral(exponent: Curve, factor: Curve, scale: np.ndarray) -> np.ndarray:
    """The integral over v from 0 to infinity of factor(v) exp(exponent(v)), which is decided on a
    length of about ``scale``."""
    total = np.zeros_like(scale)
    for point, weight in zip(_POINTS, _WEIGHTS, strict=True):
        v = scale * point
        term = factor(v) * np.exp(np.minimum(exponent(v), 700.0)) * (weight * scale)
        total += np.where(np.isfinite(term), term, 0.0)
    return total


def gamma_moves(a: np.ndarray, x: np.ndarray, digamma: Curve = digamma_values) -> np.ndarray:
    """dx/da of gamma numbers x of shape a. Below x by t = x e^-v, above it by t = x + v. Of arrays
    of a device too, with their ``digamma``."""
    x = np.maximum(x, _LEAST)
    mean_log, log_x, root = digamma(a), np.log(x), np.sqrt(x)
    below = x * _integral(
        lambda v: -a * v - x * np.expm1(-v), lambda v: mean_log - log_x + v,
        1 / (np.maximum(a - x, 0.0) + root + 1e-3 * a),
    )  # fmt: skip
    above = _integral(
        lambda v: (a - 1) * np.log1p(v / x) - v, lambda v: np.log(x + v) - mean_log,
        1 / (np.maximum(1 - (a - 1) / x, 0.0) + 1 / (1 + root)),
    )  # fmt: skip
    return np.where((log_x < mean_log) | (x < _NEAR), below, above)


def _beta_moves(x: np.ndarray, a: np.ndarray, b: np.ndarray, digamma: Curve) -> np.ndarray:
    """dx/da of beta numbers x of shapes a and b. Below x by t = x e^-v, above it by
    1 - t = (1 - x) e^-v."""
    rest, x = np.maximum(1 - x, _LEAST), np.maximum(x, _LEAST)
    mean_log, log_x = digamma(a) - digamma(a + b), np.log(x)
    ratio, other = x / rest, rest / x
    below = x * _integral(
        lambda v: -a * v + (b - 1) * np.log1p(-ratio * np.expm1(-v)),
        lambda v: mean_log - log_x + v, _length(a, b, ratio),
    )  # fmt: skip
    above = rest * _integral(
        lambda v: -b * v + (a - 1) * np.log1p(-other * np.expm1(-v)),
        lambda v: np.log(x - rest * np.expm1(-v)) - mean_log, _length(b, a, other),
    )  # fmt: skip
    is_below = (log_x < mean_log) & (other * (1 + a) > _NEAR)
    return np.where(is_below | (ratio * (1 + b) < _NEAR), below, above)


def _length(a: np.ndarray, b: np.ndarray, ratio: np.ndarray) -> np.ndarray:
    """Over which -a v + (b - 1) log(1 + ratio (1 - e^-v)) falls by about 1."""
    slope = np.abs(a - (b - 1) * ratio)
    bend = np.sqrt(np.abs(b - 1) * ratio * (1 + ratio))
    return 1 / (slope + bend + 1e-3 * a)


def _typed(fn: Callable[..., np.ndarray], *args: np.ndarray) -> np.ndarray:
    """``fn`` in float64, in the type of the first argument."""
    if any(x.dtype.kind == "c" for x in args):
        raise TypeError("not defined for complex numbers")
    with np.errstate(all="ignore"):
        wide = np.broadcast_arrays(*(np.asarray(x, np.float64) for x in args))
        return fn(*wide).astype(args[0].dtype)


# --- gamma -------------------------------------------------------------------------------------
def _shape_of(a: Any, generator: Generator) -> tuple:
    return a.shape, a.dtype


def _gamma(a: np.ndarray, generator: Generator) -> np.ndarray:
    return np.asarray(generator.rng.standard_gamma(a.astype(np.float64))).astype(a.dtype)


draw_gamma: Primitive = primitive(
    "standard_gamma", _gamma, "a", vjp={"a": lambda g, a, out: g * standard_gamma_grad(a, out)},
    random=True, shape=_shape_of,
)  # fmt: skip
draw_gamma.elementwise = True


def _no_second(g: object) -> Any:
    raise AutogradError(
        "standard_gamma_grad: the derivative by the shape is not implemented, nor is it in "
        "PyTorch; detach() what is differentiated twice"
    )


def _moves_by_sample(g: Any, a: Any, b: Any, out: Any) -> Any:
    """From d(log density)/da and d(log density)/dx, which are closed."""
    return -g * (log(b) - polygamma(a, n=0) + out * ((a - 1) / b - 1))


standard_gamma_grad: Primitive = binary(
    "standard_gamma_grad", lambda a, b: _typed(gamma_moves, a, b), _no_second, _moves_by_sample,
    promote=same_type_args, takes="fV",
    samples=lambda rng: [((rng.uniform(0.5, 4.0, (3, 4)), rng.uniform(0.5, 4.0, (3, 4))), {})],
)  # fmt: skip


# --- Dirichlet ---------------------------------------------------------------------------------
def _dirichlet(a: np.ndarray, generator: Generator) -> np.ndarray:
    """Gamma numbers over their sum, by logarithms: small shapes have samples near 0."""
    wide = np.asarray(a, np.float64)
    with np.errstate(divide="ignore"):
        power = np.log(generator.rng.random(a.shape)) / wide
        logs = np.log(generator.rng.standard_gamma(wide + 1)) + power
    logs -= logs.max(axis=-1, keepdims=True)
    drawn = np.exp(logs)
    return (drawn / drawn.sum(axis=-1, keepdims=True)).astype(a.dtype)


def _dirichlet_rule(g: Any, a: Any, out: Any) -> Any:
    apart = g - sum_(g * out, dims=(a.ndim - 1,), keepdim=True)
    total = sum_(a, dims=(a.ndim - 1,), keepdim=True)
    return dirichlet_grad(out, a, total + a * 0) * apart


def _front(prim: Any) -> Any:
    def rule(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
        return prim()(*(front(a, d) for a, d in zip(args, dims, strict=True)), **params), 0

    return rule


draw_dirichlet: Primitive = primitive(
    "standard_dirichlet", _dirichlet, "a", vjp={"a": _dirichlet_rule}, random=True,
    shape=_shape_of, batch=_front(lambda: draw_dirichlet),
)  # fmt: skip


def dirichlet_moves(
    x: np.ndarray, a: np.ndarray, total: np.ndarray, digamma: Curve = digamma_values
) -> np.ndarray:
    """How a number x of a Dirichlet sample moves with its own concentration, where the others
    shrink alike: by the beta distribution that it has, over the others' share."""
    rest = np.maximum(1 - x, _LEAST)
    return _beta_moves(x, a, np.maximum(total - a, _LEAST), digamma) / rest


def _no_second_dirichlet(g: object) -> Any:
    raise AutogradError(
        "dirichlet_grad: its derivatives are not implemented, nor are they in PyTorch; detach() "
        "what is differentiated twice"
    )


dirichlet_grad: Primitive = primitive(
    "dirichlet_grad", lambda x, a, total: _typed(dirichlet_moves, x, a, total), "x a total",
    vjp={"x": _no_second_dirichlet, "a": _no_second_dirichlet, "total": _no_second_dirichlet},
    shape=lambda x, a, total: (x.shape, x.dtype),
    samples=lambda rng: [
        ((rng.uniform(0.1, 0.9, (3, 4)), rng.uniform(0.5, 2.0, (3, 4)), np.full((3, 4), 4.0)), {})
    ],
)  # fmt: skip
dirichlet_grad.elementwise, dirichlet_grad.takes = True, "fV"


# --- without derivatives -----------------------------------------------------------------------
def _binomial(a: np.ndarray, b: np.ndarray, generator: Generator) -> np.ndarray:
    count, chance = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(b, np.float64))
    known = (count > 0) & (chance > 0) & (count < math.inf)
    drawn = generator.rng.binomial(
        np.where(known, count, 0.0).astype(np.int64), np.where(known, chance, 0.0).clip(0, 1)
    )
    unknown = np.isnan(count) | np.isnan(chance)
    return np.where(unknown, np.nan, drawn).astype(a.dtype)


draw_binomial: Primitive = primitive(
    "binomial", _binomial, "a b", random=True,
    shape=lambda a, b, generator: (np.broadcast_shapes(a.shape, b.shape), a.dtype),
)  # fmt: skip
draw_binomial.elementwise = True


def _von_mises(a: np.ndarray, generator: Generator) -> np.ndarray:
    return np.asarray(generator.rng.vonmises(0.0, a.astype(np.float64))).astype(a.dtype)


draw_von_mises: Primitive = primitive(
    "standard_von_mises", _von_mises, "a", random=True, shape=_shape_of
)
draw_von_mises.elementwise = True
