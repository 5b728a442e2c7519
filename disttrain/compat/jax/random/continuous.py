"""Samplers of continuous distributions."""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any

import numpy as np

from .... import keyed
from ..array import kind_of, unwrap, wrap
from ..types import canonical, result_kind
from .arguments import (
    Shape,
    common_shape,
    drawn,
    float_kind,
    key_of,
    plain,
    shape_of,
    unsharded,
)


def uniform(
    key: Any, shape: Shape = (), dtype: Any = None, minval: Any = 0.0, maxval: Any = 1.0, *,
    out_sharding: Any = None,
) -> Any:  # fmt: skip
    """Uniform on [minval, maxval)."""
    ends = {"low": minval, "high": maxval}
    if any(not isinstance(x, (int, float)) for x in ends.values()):
        ends = {name: unwrap(x, float_kind("uniform", dtype)) for name, x in ends.items()}
    return plain("uniform", keyed.uniform, key, shape, dtype, out_sharding, **ends)


def normal(key: Any, shape: Shape = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Standard normal."""
    unsharded("normal", out_sharding)
    kind = float_kind("normal", dtype, "fVc", "a float or complex")
    return wrap(keyed.normal(key_of("normal", key), shape_of(shape), kind))


def _sampler(name: str, draw: Callable, text: str) -> Callable[..., Any]:
    def sampler(key: Any, shape: Shape = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
        return plain(name, draw, key, shape, dtype, out_sharding)

    sampler.__name__ = sampler.__qualname__ = name
    sampler.__doc__ = text
    return sampler


cauchy = _sampler("cauchy", keyed.cauchy, "Cauchy's.")
exponential = _sampler("exponential", keyed.exponential, "Exponential with rate 1.")
laplace = _sampler("laplace", keyed.laplace, "Laplace's.")
logistic = _sampler("logistic", keyed.logistic, "Logistic.")
maxwell = _sampler("maxwell", keyed.maxwell, "Maxwell's, of one side.")


def gumbel(
    key: Any, shape: Shape = (), dtype: Any = None, mode: str | None = None, *,
    out_sharding: Any = None,
) -> Any:  # fmt: skip
    """Gumbel's; mode "high" draws twice as many bits."""
    fine = is_fine(mode)
    return plain("gumbel", keyed.gumbel, key, shape, dtype, out_sharding, fine=fine)


def is_fine(mode: str | None) -> bool:
    """Whether a mode of Gumbel's draws twice as many bits."""
    if mode == "highest":
        raise NotImplementedError("gumbel: mode 'highest' is not here; 'high' and 'low' are")
    if mode not in (None, "high", "low"):
        raise ValueError(f"Must provide valid mode for gumbel got: {mode}")
    return mode == "high"


def _of(
    name: str, draw: Callable, num: int, text: str, safe: bool = True, **how: Any
) -> Callable[..., Any]:
    """The sampler of a distribution of ``num`` parameters, which are called as in ``_NAMES``."""
    names = _NAMES[name].split()

    def sampler(key: Any, *args: Any, out_sharding: Any = None, **named: Any) -> Any:
        given = dict(zip((*names, "shape", "dtype"), args))
        if len(args) > num + 2 or given.keys() & named.keys():
            raise TypeError(f"{name}() got multiple values or too many arguments")
        given |= named
        missing = [n for n in names if n not in given]
        unknown = given.keys() - {*names, "shape", "dtype"}
        if missing or unknown:
            raise TypeError(
                f"{name}() missing {len(missing)} required positional arguments: {missing}"
                if missing else f"{name}() got an unexpected keyword argument {min(unknown)!r}"
            )  # fmt: skip
        params = tuple(given[n] for n in names)
        shape, dtype = given.get("shape"), given.get("dtype")
        return drawn(name, draw, key, params, shape, dtype, out_sharding, safe, **how)

    sampler.__name__ = sampler.__qualname__ = name
    sampler.__doc__ = text
    return sampler


_NAMES = {
    "beta": "a b", "gamma": "a", "loggamma": "a", "pareto": "b", "t": "df", "chisquare": "df",
    "f": "dfnum dfden", "rayleigh": "scale", "wald": "mean", "triangular": "left mode right",
    "truncated_normal": "lower upper",
}  # fmt: skip

beta = _of("beta", keyed.beta, 2, "Beta numbers of (a, b).")
gamma = _of("gamma", keyed.gamma, 1, "Gamma numbers of shape a.", safe=False)
loggamma = _of(
    "loggamma", keyed.gamma, 1, "Logarithms of gamma numbers.", safe=False, log_space=True
)
pareto = _of("pareto", keyed.pareto, 1, "Pareto's.")
t = _of("t", keyed.student, 1, "Student's t.")
chisquare = _of("chisquare", keyed.chisquare, 1, "χ².")
f = _of("f", keyed.fisher, 2, "F of (dfnum, dfden).")
rayleigh = _of("rayleigh", keyed.rayleigh, 1, "Rayleigh's.")
wald = _of("wald", keyed.wald, 1, "Wald's.")
triangular = _of("triangular", keyed.triangular, 3, "Triangular.")
truncated_normal = _of(
    "truncated_normal", keyed.truncated_normal, 2, "Normal between two bounds.", safe=False
)


def lognormal(
    key: Any, sigma: Any = 1.0, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """e to the power of normal numbers."""
    return drawn("lognormal", keyed.lognormal, key, (sigma,), shape, dtype, out_sharding)


def double_sided_maxwell(
    key: Any, loc: Any, scale: Any, shape: Shape = (), dtype: Any = None
) -> Any:
    """Maxwell's with both signs."""
    found, kind = key_of("double_sided_maxwell", key), float_kind("double_sided_maxwell", dtype)
    own = np.broadcast_shapes(np.shape(loc), np.shape(scale))
    full = (shape_of(shape) or own) + own
    ends = unwrap(loc, kind), unwrap(scale, kind)
    return wrap(keyed.double_sided_maxwell(found, *ends, full, kind))


def weibull_min(
    key: Any, scale: Any, concentration: Any, shape: Shape = (), dtype: Any = None
) -> Any:
    """Weibull's."""
    found, kind = key_of("weibull_min", key), float_kind("weibull_min", dtype)
    params = unwrap(scale, kind), unwrap(concentration, kind)
    return wrap(keyed.weibull(found, *params, shape_of(shape), kind))


def generalized_normal(
    key: Any, p: Any, shape: Shape = (), dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Density proportional to exp(-|x|ᵖ)."""
    power = unwrap(p, float_kind("generalized_normal", dtype))
    return plain(
        "generalized_normal", lambda k, s, d: keyed.generalized_normal(k, power, s, d), key,
        shape, dtype, out_sharding,
    )  # fmt: skip


def ball(
    key: Any, d: int, p: Any = 2, shape: Shape = (), dtype: Any = None, *,
    out_sharding: Any = None,
) -> Any:  # fmt: skip
    """Uniform in the unit ball of the norm Lᵖ."""
    power, d = unwrap(p, float_kind("ball", dtype)), index(d)
    return plain(
        "ball", lambda k, s, kind: keyed.ball(k, d, power, s, kind), key, shape, dtype,
        out_sharding,
    )  # fmt: skip


def orthogonal(
    key: Any, n: int, shape: Shape = (), dtype: Any = None, m: int | None = None, *,
    out_sharding: Any = None,
) -> Any:  # fmt: skip
    """Orthogonal matrices, evenly."""
    n, m = index(n), index(n if m is None else m)
    return plain(
        "orthogonal", lambda k, s, kind: keyed.orthogonal(k, n, m, s, kind), key, shape, dtype,
        out_sharding,
    )  # fmt: skip


def dirichlet(
    key: Any, alpha: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Dirichlet's of concentrations in the last dimension."""
    unsharded("dirichlet", out_sharding)
    found, kind = key_of("dirichlet", key), float_kind("dirichlet", dtype)
    if np.ndim(alpha) < 1:
        raise ValueError(f"dirichlet requires alpha.ndim >= 1, got alpha.ndim == {np.ndim(alpha)}")
    full = common_shape("dirichlet", shape, np.empty(np.shape(alpha)[:-1]))
    return wrap(keyed.dirichlet(found, unwrap(alpha, kind), full, kind))


def multivariate_normal(
    key: Any, mean: Any, cov: Any, shape: Any = None, dtype: Any = None,
    method: str = "cholesky", *, out_sharding: Any = None,
) -> Any:  # fmt: skip
    """Normal vectors of given means and covariances."""
    unsharded("multivariate_normal", out_sharding)
    found = key_of("multivariate_normal", key)
    if method not in ("svd", "eigh", "cholesky"):
        raise ValueError("method must be one of {'svd', 'eigh', 'cholesky'}")
    own = result_kind(kind_of(mean), kind_of(cov), (canonical(float), True))[0]
    kind = float_kind("multivariate_normal", own if dtype is None else dtype)
    for name, value, least in (("mean", mean, 1), ("cov", cov, 2)):
        if np.ndim(value) < least:
            raise ValueError(
                f"multivariate_normal requires {name}.ndim >= {least}, got {name}.ndim == "
                f"{np.ndim(value)}"
            )
    n, given = np.shape(mean)[-1], np.shape(cov)
    if given[-2:] != (n, n):
        raise ValueError(
            f"multivariate_normal requires cov.shape == (..., n, n) for n={n}, but got cov.shape "
            f"== {given}."
        )
    full = common_shape("normal", shape, np.empty(np.shape(mean)[:-1]), np.empty(given[:-2]))
    values = unwrap(mean, kind), unwrap(cov, kind)
    return wrap(keyed.multivariate_normal(found, *values, full, kind, method))
