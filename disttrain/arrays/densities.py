"""Densities and distribution functions with SciPy's arguments: shapes, then ``loc`` and ``scale``.

A distribution is given by the logarithm of its standard density, its support, and, where there is
one, its distribution function; ``located`` moves and stretches it.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

from .. import linalg
from .. import special as sp
from ..core.tensor import Tensor
from ..ops import api as ops
from . import special

_LOG_2PI = math.log(2 * math.pi)


def _xlogy(x: Tensor, y: Tensor) -> Tensor:
    return ops.xlogy(x, y)


# --- standard densities: (y, *shapes) -> log density -----------------------------------------
def norm(y: Tensor) -> Tensor:
    """The normal distribution."""
    return -0.5 * (y * y + _LOG_2PI)


def expon(y: Tensor) -> Tensor:
    """The exponential distribution."""
    return -y


def uniform(y: Tensor) -> Tensor:
    """The uniform distribution on [0, 1]."""
    return ops.zeros_like(y)


def laplace(y: Tensor) -> Tensor:
    """Laplace's distribution."""
    return -ops.abs(y) - math.log(2)


def logistic(y: Tensor) -> Tensor:
    """The logistic distribution."""
    half = y / 2
    return -2 * ops.logaddexp(half, -half)


def cauchy(y: Tensor) -> Tensor:
    """Cauchy's distribution."""
    return -math.log(math.pi) - ops.log1p(y * y)


def gumbel_r(y: Tensor) -> Tensor:
    """Gumbel's distribution of the largest."""
    return -(y + ops.exp(-y))


def gumbel_l(y: Tensor) -> Tensor:
    """Gumbel's distribution of the least."""
    return y - ops.exp(y)


def gamma(y: Tensor, a: Tensor) -> Tensor:
    """The gamma distribution."""
    return _xlogy(a - 1, y) - y - ops.lgamma(a)


def chi2(y: Tensor, df: Tensor) -> Tensor:
    """Pearson's distribution of a sum of squares."""
    return gamma(y / 2, df / 2) - math.log(2)


def beta(y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The beta distribution."""
    return _xlogy(a - 1, y) + sp.xlog1py(b - 1, -y) - special.betaln(a, b)


def t(y: Tensor, df: Tensor) -> Tensor:
    """Student's distribution."""
    front = ops.lgamma((df + 1) / 2) - ops.lgamma(df / 2) - 0.5 * ops.log(math.pi * df)
    return front - (df + 1) / 2 * ops.log1p(y * y / df)


def pareto(y: Tensor, b: Tensor) -> Tensor:
    """Pareto's distribution, from 1 on."""
    return ops.log(b) - (b + 1) * ops.log(y)


def gennorm(y: Tensor, beta: Tensor) -> Tensor:
    """The generalized normal distribution."""
    return ops.log(0.5 * beta) - ops.lgamma(1 / beta) - ops.abs(y) ** beta


def wrapcauchy(y: Tensor, c: Tensor) -> Tensor:
    """Cauchy's distribution around a circle."""
    return ops.log(1 - c * c) - math.log(2 * math.pi) - ops.log(1 + c * c - 2 * c * ops.cos(y))


def vonmises(y: Tensor, kappa: Tensor) -> Tensor:
    """Von Mises' distribution around a circle."""
    return kappa * (ops.cos(y) - 1) - (_LOG_2PI + ops.log(sp.i0e(kappa)))


def truncnorm(y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The normal distribution between ``a`` and ``b``."""
    right = a > 0
    low, high = ops.where(right, -b, a), ops.where(right, -a, b)
    upper, lower = sp.log_ndtr(high), sp.log_ndtr(low)
    inside = norm(y) - (upper + ops.log1p(-ops.exp(lower - upper)))
    return ops.where((y < a) | (y > b), -float("inf"), inside)


# --- numbers: (k, *shapes) -> log probability -------------------------------------------------
def poisson(k: Tensor, mu: Tensor) -> Tensor:
    """Poisson's distribution."""
    return _xlogy(k, mu) - ops.lgamma(k + 1) - mu


def geom(k: Tensor, p: Tensor) -> Tensor:
    """How many trials up to the first success."""
    return sp.xlog1py(k - 1, -p) + ops.log(p)


def bernoulli(k: Tensor, p: Tensor) -> Tensor:
    """0 or 1."""
    return _xlogy(k, p) + sp.xlog1py(1 - k, -p)


def binom(k: Tensor, n: Tensor, p: Tensor) -> Tensor:
    """How many of n succeed."""
    ways = ops.lgamma(n + 1) - ops.lgamma(k + 1) - ops.lgamma(n - k + 1)
    value = ways + _xlogy(k, p) + sp.xlog1py(n - k, -p)
    return ops.where(k > n, -float("inf"), value)


def nbinom(k: Tensor, n: Tensor, p: Tensor) -> Tensor:
    """How many fail before the n-th success."""
    ways = ops.lgamma(k + n) - ops.lgamma(k + 1) - ops.lgamma(n)
    return ways + n * ops.log(p) + sp.xlog1py(k, -p)


def betabinom(k: Tensor, n: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """``binom`` with a share that is ``beta``."""
    ways = -ops.log(n + 1) - special.betaln(n - k + 1, k + 1)
    value = ways + special.betaln(k + a, n - k + b) - special.betaln(a, b)
    return ops.where(k > n, -float("inf"), value)


# --- distribution functions ---------------------------------------------------------------------
CDF: dict[str, Callable] = {
    "norm": lambda y: sp.ndtr(y),
    "expon": lambda y: -ops.expm1(-y),
    "uniform": lambda y: y,
    "laplace": lambda y: ops.where(
        y < 0, 0.5 * ops.exp(-ops.abs(y)), 1 - 0.5 * ops.exp(-ops.abs(y))
    ),
    "logistic": lambda y: ops.sigmoid(y),
    "cauchy": lambda y: ops.atan(y) / math.pi + 0.5,
    "gumbel_r": lambda y: ops.exp(-ops.exp(-y)),
    "gumbel_l": lambda y: -ops.expm1(-ops.exp(y)),
    "gamma": lambda y, a: sp.gammainc(a, y),
    "chi2": lambda y, df: sp.gammainc(df / 2, y / 2),
    "beta": lambda y, a, b: special.betainc(a, b, y),
    "pareto": lambda y, b: 1 - y**-b,
    "poisson": lambda k, mu: sp.gammaincc(ops.floor(k) + 1, mu),
    "bernoulli": lambda k, p: ops.where(k < 0, 0.0, ops.where(k < 1, 1 - p, 1.0)),
}
PPF: dict[str, Callable] = {
    "norm": lambda q: sp.ndtri(q),
    "logistic": lambda q: ops.logit(q),
    "cauchy": lambda q: ops.tan(math.pi * (q - 0.5)),
    "uniform": lambda q: q,
    "expon": lambda q: -ops.log1p(-q),
    "laplace": lambda q: -ops.sign(q - 0.5) * ops.log1p(-2 * ops.abs(q - 0.5)),
    "gumbel_r": lambda q: -ops.log(-ops.log(q)),
    "gumbel_l": lambda q: ops.log(-ops.log1p(-q)),
    "pareto": lambda q, b: (1 - q) ** (-1 / b),
}
SUPPORT: dict[str, tuple[float, float]] = {
    "expon": (0, math.inf), "uniform": (0, 1), "gamma": (0, math.inf), "chi2": (0, math.inf),
    "beta": (0, 1), "pareto": (1, math.inf), "poisson": (0, math.inf), "geom": (1, math.inf),
    "bernoulli": (0, 1), "binom": (0, math.inf), "nbinom": (0, math.inf),
    "betabinom": (0, math.inf), "wrapcauchy": (0, 2 * math.pi),
}  # fmt: skip
DISCRETE = ("poisson", "geom", "bernoulli", "binom", "nbinom", "betabinom")
CONTINUOUS = (
    "norm expon uniform laplace logistic cauchy gumbel_r gumbel_l gamma chi2 beta t pareto gennorm "
    "wrapcauchy vonmises truncnorm"
).split()


def log_density(name: str, y: Tensor, *shapes: Tensor) -> Tensor:
    """The logarithm of the density at ``y``; -inf outside of the support."""
    low, high = SUPPORT.get(name, (-math.inf, math.inf))
    inside = (y >= low) & (y <= high)
    safe = y
    if math.isfinite(low):
        middle = low + 0.5 if math.isfinite(high) else low + 1
        safe = ops.where(inside, y, ops.full_like(y, middle))
    value = globals()[name](safe, *shapes)
    if name in DISCRETE:
        inside = inside & (y == ops.floor(y))
    return ops.where(inside, value, -float("inf")) if name in SUPPORT else value


def cumulative(name: str, y: Tensor, *shapes: Tensor) -> Tensor:
    """The distribution function at ``y``."""
    low, high = SUPPORT.get(name, (-math.inf, math.inf))
    if name in SUPPORT:
        value = CDF[name](ops.clamp(y, low, high if math.isfinite(high) else None), *shapes)
        return ops.where(y < low, 0.0, ops.where(y > high, 1.0, value))
    return CDF[name](y, *shapes)


# --- methods ------------------------------------------------------------------------------------
def _standard(x: Any, loc: Any, scale: Any) -> Any:
    return (x - loc) / scale


def _log_density(name: str, x: Tensor, parts: list, loc: Any, scale: Any) -> Tensor:
    value = log_density(name, _standard(x, loc, scale), *parts)
    return value - ops.log(scale) if isinstance(scale, Tensor) else value


def _cumulative(name: str, x: Tensor, parts: list, loc: Any, scale: Any) -> Tensor:
    return cumulative(name, _standard(x, loc, scale), *parts)


def _log_cumulative(name: str, x: Tensor, parts: list, loc: Any, scale: Any) -> Tensor:
    if name == "norm":
        return sp.log_ndtr(_standard(x, loc, scale))
    return ops.log(_cumulative(name, x, parts, loc, scale))


def _survival(name: str, x: Tensor, parts: list, loc: Any, scale: Any) -> Tensor:
    if name in ("norm", "logistic", "cauchy"):
        return cumulative(name, -_standard(x, loc, scale), *parts)
    return 1 - _cumulative(name, x, parts, loc, scale)


def _log_survival(name: str, x: Tensor, parts: list, loc: Any, scale: Any) -> Tensor:
    if name == "norm":
        return sp.log_ndtr(-_standard(x, loc, scale))
    return ops.log(_survival(name, x, parts, loc, scale))


def _quantile(name: str, q: Tensor, parts: list, loc: Any, scale: Any) -> Tensor:
    return PPF[name](q, *parts) * scale + loc


def _upper_quantile(name: str, q: Tensor, parts: list, loc: Any, scale: Any) -> Tensor:
    return _quantile(name, 1 - q, parts, loc, scale)


def exponential(fn: Callable) -> Callable:
    """e to the power of what ``fn`` gives, under its signature."""

    @functools.wraps(fn)
    def run(*args: Any, **given: Any) -> Tensor:
        return ops.exp(fn(*args, **given))

    return run


UNSCALED = ("gennorm", "vonmises")  # whose methods take neither ``loc`` nor ``scale``


def methods(name: str) -> dict[str, Callable]:
    """SciPy's methods of a distribution: functions of x, its shapes, ``loc`` and ``scale``."""
    kind = "pmf" if name in DISCRETE else "pdf"
    found: dict[str, Callable] = {f"log{kind}": _log_density, kind: exponential(_log_density)}
    if name in CDF:
        found |= {"cdf": _cumulative, "logcdf": _log_cumulative}
        found |= {"sf": _survival, "logsf": _log_survival}
    if name in PPF:
        found |= {"ppf": _quantile, "isf": _upper_quantile}
    return {method: _method(name, method, fn) for method, fn in found.items()}


def _method(name: str, method: str, compute: Callable) -> Callable:
    shapes = list(inspect.signature(globals()[name]).parameters)[1:]
    more = [] if name in UNSCALED else ["loc"] if name in DISCRETE else ["loc", "scale"]
    named = inspect.Parameter.POSITIONAL_OR_KEYWORD
    plain = [inspect.Parameter(n, named) for n in ("x", *shapes)]
    moved = [inspect.Parameter(n, named, default=int(n == "scale")) for n in more]
    signature = inspect.Signature([*plain, *moved])

    def run(*args: Any, **given: Any) -> Tensor:
        bound = signature.bind(*args, **given)
        bound.apply_defaults()
        found = bound.arguments
        parts = [found[n] for n in shapes]
        return compute(name, found["x"], parts, found.get("loc", 0), found.get("scale", 1))

    run.__name__, run.__signature__ = method, signature  # type: ignore[attr-defined]
    return run


def dirichlet(x: Tensor, alpha: Tensor) -> Tensor:
    """The logarithm of Dirichlet's density; the last place of ``x`` may be left out."""
    if x.shape[0] + 1 == alpha.shape[0]:
        x = ops.cat([x, 1 - ops.sum(x, 0, keepdim=True)])
    front = ops.lgamma(ops.sum(alpha)) - ops.sum(ops.lgamma(alpha))
    column = alpha.reshape((-1,) + (1,) * (x.ndim - 1))
    value = front + ops.sum(_xlogy(column - 1, x), 0)
    inside = ops.all(x > 0, 0) & (ops.abs(ops.sum(x, 0) - 1) < 1e-6)
    return ops.where(inside, value, -float("inf"))


def multivariate_normal(x: Tensor, mean: Any = None, cov: Any = None) -> Tensor:
    """The logarithm of the normal density of vectors."""
    mean = x.new_zeros(()) if mean is None else mean
    cov = x.new_ones(()) if cov is None else cov
    n = mean.shape[-1] if mean.ndim else 1
    if not mean.ndim or not cov.ndim:
        beside = x - mean
        size = x.shape[-1] if x.ndim else 1
        square = beside * beside / cov
        square = ops.sum(square, -1) if x.ndim else square
        return -0.5 * (square + size * (_LOG_2PI + ops.log(cov)))
    factor = linalg.cholesky(cov)
    beside = linalg.solve_triangular(factor, ops.unsqueeze(x - mean, -1), upper=False)
    half = ops.sum(ops.log(ops.diagonal(factor, 0, -2, -1)), -1)
    return -0.5 * ops.sum(beside[..., 0] ** 2, -1) - 0.5 * n * _LOG_2PI - half


def multinomial(x: Tensor, n: Tensor, p: Tensor) -> Tensor:
    """The logarithm of the probability of counts."""
    value = ops.lgamma(n + 1) + ops.sum(_xlogy(x, p) - ops.lgamma(x + 1), -1)
    return ops.where(ops.sum(x, -1) == n, value, -float("inf"))
