"""Numbers of continuous distributions, drawn with a key: inverse distribution functions of uniform
numbers, and functions of normal and gamma ones.

Every function takes (key, [parameters,] shape, dtype): ``shape`` is that of the result for one key;
parameters are tensors of the type, whose shapes broadcast into it. Derivatives by parameters are
those of the formula, and of gamma numbers implicit ones.
"""

from __future__ import annotations

import math
from operator import index
from typing import Any

import ml_dtypes
import numpy as np

from .. import linalg
from ..core.tensor import Tensor
from ..errors import ConfigError
from ..ops import api as t
from ..ops.primitives.rejection import threefry_gamma
from ..ops.primitives.threefry import erfinv_single, fma
from . import keys as k
from .whole import rademacher

Shape = tuple[int, ...]


def uniform(
    key: Tensor, shape: Shape, dtype: np.dtype, low: float | Tensor = 0.0,
    high: float | Tensor = 1.0,
) -> Any:  # fmt: skip
    """Uniform on [low, high)."""
    found = k.draw(key, shape, "unit", dtype)
    if not isinstance(low, Tensor) and not isinstance(high, Tensor) and (low, high) == (0.0, 1.0):
        return found
    least, most = number(low, found), number(high, found)
    if found.meta()[1].itemsize < 4:
        return t.maximum(least, found * (most - least) + least)
    return t.maximum(least, fma(found, most - least, least))


def number(value: float | Tensor, like: Tensor) -> Any:
    """A parameter as a tensor of the type of ``like``."""
    if isinstance(value, Tensor):
        return value.to(like.dtype)
    return t.tensor(np.asarray(value, like.meta()[1]))


def normal(key: Tensor, shape: Shape, dtype: np.dtype) -> Any:
    """Normal with mean 0 and variance 1, also of complex types."""
    dtype = np.dtype(dtype)
    if dtype.kind != "c":
        return k.draw(key, shape, "normal", dtype)
    part, new = np.dtype(f"f{dtype.itemsize // 2}"), k.split(key)
    real, imaginary = normal(new[..., 0], shape, part), normal(new[..., 1], shape, part)
    return t.complex(real, imaginary) / math.sqrt(2)


def truncated_normal(key: Tensor, low: Tensor, high: Tensor, shape: Shape, dtype: np.dtype) -> Any:
    """Normal between ``low`` and ``high``, both excluded."""
    root = math.sqrt(2)
    u = uniform(key, shape, dtype, t.erf(low / root), t.erf(high / root))
    out = root * erfinv_single(u)
    least = t.nextafter(low.detach(), t.full_like(low, math.inf))
    most = t.nextafter(high.detach(), t.full_like(high, -math.inf))
    return t.minimum(t.maximum(out, least), most)


def exponential(key: Tensor, shape: Shape, dtype: np.dtype) -> Any:
    """Exponential with rate 1."""
    return -t.log1p(-uniform(key, shape, dtype))


def gumbel(key: Tensor, shape: Shape, dtype: np.dtype, mode: str | None = None) -> Any:
    """Gumbel's; ``mode="high"``: with twice as many bits, so that the tail is longer."""
    info = ml_dtypes.finfo(dtype)
    if not k.is_high(mode):
        return -t.log(-t.log(uniform(key, shape, dtype, float(info.tiny), 1.0)))
    both = uniform(key, (2, *shape), dtype)
    lead = both.ndim - len(shape) - 1
    upper, lower = both.select(lead, 0), both.select(lead, 1)
    x = t.where(upper >= 0.5, upper, upper + 2.0**-info.nmant * lower + float(info.tiny))
    return -t.log(-t.log1p(-x))


def laplace(key: Tensor, shape: Shape, dtype: np.dtype) -> Any:
    """Laplace's, with scale 1."""
    low = -1.0 + float(ml_dtypes.finfo(dtype).epsneg)
    u = uniform(key, shape, dtype, low, 1.0)
    return t.sign(u) * t.log1p(-t.abs(u))


def logistic(key: Tensor, shape: Shape, dtype: np.dtype) -> Any:
    """Logistic, with scale 1."""
    x = uniform(key, shape, dtype, float(ml_dtypes.finfo(dtype).tiny), 1.0)
    return t.log(x) - t.log1p(-x)


def cauchy(key: Tensor, shape: Shape, dtype: np.dtype) -> Any:
    """Cauchy's, with scale 1."""
    u = uniform(key, shape, dtype, float(ml_dtypes.finfo(dtype).eps), 1.0)
    return t.tan(math.pi * (u - 0.5))


def pareto(key: Tensor, b: Tensor, shape: Shape, dtype: np.dtype) -> Any:
    """Pareto's, on [1, ∞) with exponent ``b``."""
    return t.exp(exponential(key, shape, dtype) / b)


def rayleigh(key: Tensor, scale: Tensor, shape: Shape, dtype: np.dtype) -> Any:
    """Rayleigh's."""
    return scale * t.sqrt(t.log(uniform(key, shape, dtype)) * -2)


def weibull(
    key: Tensor, scale: Tensor, concentration: Tensor, shape: Shape, dtype: np.dtype
) -> Any:
    """Weibull's of minima."""
    power = 1.0 / concentration
    return t.pow(-t.log1p(-uniform(key, shape, dtype)), power) * scale


def triangular(
    key: Tensor, left: Tensor, mode: Tensor, right: Tensor, shape: Shape, dtype: np.dtype
) -> Any:
    """Triangular between ``left`` and ``right``."""
    u, width = uniform(key, shape, dtype), right - left
    rising = left + t.sqrt(u * width * (mode - left))
    falling = right - t.sqrt((1 - u) * width * (right - mode))
    return t.where(u < (mode - left) / width, rising, falling)


def lognormal(key: Tensor, sigma: Tensor, shape: Shape, dtype: np.dtype) -> Any:
    """e to the power of normal numbers of deviation ``sigma``."""
    return t.exp(normal(key, shape, dtype) * sigma)


def wald(key: Tensor, mean: Tensor, shape: Shape, dtype: np.dtype) -> Any:
    """Wald's (inverse Gaussian, with scale 1), by J. Michael, W. Schucany and R. Haas, 1976."""
    one, two = _pair(key)
    v, z = normal(one, shape, dtype), uniform(two, shape, dtype)
    y = v * v
    root = t.sqrt(4 * mean * y + mean * mean * (y * y))
    x = mean + mean * mean * y / 2 - mean / 2 * root
    return t.where(z <= mean / (mean + x), x, mean * mean / x)


def maxwell(key: Tensor, shape: Shape, dtype: np.dtype) -> Any:
    """Maxwell's: lengths of normal vectors of 3 dimensions."""
    return linalg.vector_norm(normal(key, (*shape, 3), dtype), dim=-1)


def double_sided_maxwell(
    key: Tensor, loc: Tensor, scale: Tensor, shape: Shape, dtype: np.dtype
) -> Any:
    """Maxwell's with both signs: ``shape`` (that of the parameters, where it is ()), and that of
    the parameters after it."""
    own = np.broadcast_shapes(tuple(loc.shape), tuple(scale.shape))
    shape, (one, two) = (shape or own) + own, _pair(key)
    sign = rademacher(two, shape, dtype)
    return sign * maxwell(one, shape, dtype) * scale + loc


# --- gamma numbers, and what is made of them ------------------------------------------------------
def gamma(key: Tensor, a: Tensor, shape: Shape, dtype: np.dtype, log_space: bool = False) -> Any:
    """Gamma numbers of shape ``a`` (their logarithms: exact where they would be 0)."""
    lead = tuple(key.shape)
    a = number(a, t.zeros(0, dtype=t.tensor(np.zeros((), dtype)).dtype))
    a = t.broadcast_to(a, (*lead, *shape))
    return threefry_gamma(key, a, log_space=log_space, partitionable=k.partitionable())


def log_gamma(key: Tensor, a: Tensor, shape: Shape, dtype: np.dtype) -> Any:
    """The logarithms of gamma numbers."""
    return gamma(key, a, shape, dtype, True)


def beta(key: Tensor, a: Tensor, b: Tensor, shape: Shape, dtype: np.dtype) -> Any:
    """Beta numbers, by logarithms of gamma ones."""
    one, two = _pair(key)
    x, y = gamma(one, a, shape, dtype, True), gamma(two, b, shape, dtype, True)
    most = t.maximum(x, y)
    x, y = t.exp(x - most), t.exp(y - most)
    return x / (x + y)


def dirichlet(key: Tensor, alpha: Tensor, shape: Shape, dtype: np.dtype) -> Any:
    """Dirichlet's: ``shape`` without the last dimension, that of ``alpha``."""
    logs = gamma(key, alpha, (*shape, alpha.shape[-1]), dtype, True)
    return t.softmax(logs, -1)


def chisquare(key: Tensor, df: Tensor, shape: Shape, dtype: np.dtype) -> Any:
    """χ² of ``df`` degrees of freedom."""
    return t.exp(gamma(key, df / 2, shape, dtype, True)) * 2


def student(key: Tensor, df: Tensor, shape: Shape, dtype: np.dtype) -> Any:
    """Student's t of ``df`` degrees of freedom."""
    one, two = _pair(key)
    half = df / 2
    return normal(one, shape, dtype) * t.sqrt(half / gamma(two, half, shape, dtype))


def fisher(key: Tensor, above: Tensor, below: Tensor, shape: Shape, dtype: np.dtype) -> Any:
    """F of two numbers of degrees of freedom."""
    for_below, for_above = _pair(key)
    x = chisquare(for_above, above, shape, dtype) / above
    return x / (chisquare(for_below, below, shape, dtype) / below)


def generalized_normal(key: Tensor, p: float | Tensor, shape: Shape, dtype: np.dtype) -> Any:
    """The density is proportional to exp(-\\|x\\|ᵖ)."""
    one, two = _pair(key)
    inverse = 1 / p
    power = inverse if isinstance(inverse, Tensor) else t.tensor(np.asarray(inverse, dtype))
    return rademacher(two, shape, dtype) * t.pow(gamma(one, power, shape, dtype), power)


# --- vectors and matrices -------------------------------------------------------------------------
def ball(key: Tensor, d: int, p: float | Tensor, shape: Shape, dtype: np.dtype) -> Any:
    """Uniform in the unit ball of ``d`` dimensions and the norm L\\ :sub:`p`."""
    one, two = _pair(key)
    g = generalized_normal(one, p, (*shape, d), dtype)
    e = exponential(two, shape, dtype)
    return g / t.pow(t.pow(t.abs(g), p).sum(-1) + e, 1 / p)[..., None]


def orthogonal(key: Tensor, n: int, shape: Shape, dtype: np.dtype, m: int | None = None) -> Any:
    """Orthogonal matrices [*shape, n, m], evenly (Haar); rows or columns of one where n != m."""
    n, m = index(n), index(n if m is None else m)
    z = normal(key, (*shape, max(n, m), min(n, m)), dtype)
    q, r = linalg.qr(z)
    x = q * t.sgn(linalg.diagonal(r))[..., None, :]
    return x.mT if n < m else x


FACTORS = ("svd", "eigh", "cholesky")


def multivariate_normal(
    key: Tensor, mean: Tensor, cov: Tensor, shape: Shape, dtype: np.dtype,
    method: str = "cholesky",
) -> Any:  # fmt: skip
    """Normal vectors [*shape, n] of means [..., n] and covariances [..., n, n], of which ``method``
    takes a factor."""
    if method not in FACTORS:
        raise ConfigError("method must be one of {'svd', 'eigh', 'cholesky'}")
    n = mean.shape[-1]
    if tuple(cov.shape[-2:]) != (n, n):
        raise ConfigError(
            f"multivariate_normal requires cov.shape == (..., n, n) for n={n}, but got cov.shape "
            f"== {tuple(cov.shape)}."
        )
    if method == "cholesky":
        factor = linalg.cholesky(cov)
    elif method == "eigh":
        w, v = linalg.eigh(cov)
        factor = v * t.sqrt(w)[..., None, :]
    else:
        u, s, _ = linalg.svd(cov)
        factor = u * t.sqrt(s)[..., None, :]
    z = normal(key, (*shape, mean.shape[-1]), dtype)
    return mean + (factor @ z[..., None])[..., 0]


def _pair(key: Tensor) -> tuple[Any, Any]:
    new = k.split(key)
    return new[..., 0], new[..., 1]
