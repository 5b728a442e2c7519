"""``jax.scipy.stats``: distributions by ``disttrain.arrays.densities``, with SciPy's methods."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ....arrays import densities, reductions
from ....ops import api as ops
from .. import types
from ..array import Array
from ..numpy.lifting import given_back, one, operands


def _method(name: str, method: str, compute: Callable, shapes: list[str], scaled: bool) -> Callable:
    """``method(x, *shapes, loc, scale)``."""
    names = ["x", *shapes, "loc", *(["scale"] if scaled else [])]
    defaults = {"loc": 0, "scale": 1}
    if name == "gennorm":
        names, scaled = ["x", *shapes], False
    if name == "vonmises":
        names, scaled = ["x", *shapes], False

    def run(*args: Any, **given: Any) -> Array:
        bound = {**defaults, **dict(zip(names, args)), **given}
        missing = [n for n in names if n not in bound]
        if missing or len(args) > len(names):
            raise TypeError(f"{name}.{method}() missing or too many arguments; it takes {names}")
        xs = [bound[n] for n in names]
        tensors, _ = operands(f"{name}.{method}", xs, types.inexact)
        x, parts = tensors[0], tensors[1 : 1 + len(shapes)]
        loc = tensors[1 + len(shapes)] if "loc" in names else None
        scale = tensors[-1] if scaled else None
        return given_back(compute(name, x, parts, loc, scale), False, *xs)

    run.__name__ = method
    return run


def _standard(x: Any, loc: Any, scale: Any) -> Any:
    y = x if loc is None else x - loc
    return y if scale is None else y / scale


def _logpdf(name: str, x: Any, parts: list, loc: Any, scale: Any) -> Any:
    value = densities.log_density(name, _standard(x, loc, scale), *parts)
    return value if scale is None else value - ops.log(scale)


def _cdf(name: str, x: Any, parts: list, loc: Any, scale: Any) -> Any:
    return densities.cumulative(name, _standard(x, loc, scale), *parts)


def _ppf(name: str, q: Any, parts: list, loc: Any, scale: Any) -> Any:
    value = densities.PPF[name](q, *parts)
    return value * scale + loc


def _log_cdf(name: str, x: Any, parts: list, loc: Any, scale: Any) -> Any:
    if name == "norm":
        return densities.sp.log_ndtr(_standard(x, loc, scale))
    return ops.log(_cdf(name, x, parts, loc, scale))


def _sf(name: str, x: Any, parts: list, loc: Any, scale: Any) -> Any:
    if name in ("norm", "logistic", "cauchy"):
        return _cdf(name, -_standard(x, loc, scale), parts, None, None)
    return 1 - _cdf(name, x, parts, loc, scale)


def _log_sf(name: str, x: Any, parts: list, loc: Any, scale: Any) -> Any:
    if name == "norm":
        return densities.sp.log_ndtr(-_standard(x, loc, scale))
    return ops.log(_sf(name, x, parts, loc, scale))


def _exp(fn: Callable) -> Callable:
    return lambda *args: ops.exp(fn(*args))


def _isf(name: str, q: Any, parts: list, loc: Any, scale: Any) -> Any:
    return _ppf(name, 1 - q, parts, loc, scale)


def _distribution(name: str) -> SimpleNamespace:
    shapes = list(inspect.signature(getattr(densities, name)).parameters)[1:]
    scaled = name not in densities.DISCRETE
    kind = "pdf" if scaled else "pmf"
    methods = {f"log{kind}": _logpdf, kind: _exp(_logpdf)}
    if name in densities.CDF:
        methods |= {"cdf": _cdf, "logcdf": _log_cdf, "sf": _sf, "logsf": _log_sf}
    if name in densities.PPF:
        methods |= {"ppf": _ppf, "isf": _isf}
    return SimpleNamespace(**{m: _method(name, m, fn, shapes, scaled) for m, fn in methods.items()})


def _vectors(name: str, fn: Callable, kind: str) -> SimpleNamespace:
    def log(*args: Any) -> Array:
        if name == "multivariate_normal" and len(args) < 3:
            args = (*args, *((0.0,) if len(args) < 2 else ()), 1.0)[:3]
        tensors, _ = operands(name, args, types.inexact)
        return given_back(fn(*tensors), False, *args)

    def plain(*args: Any) -> Array:
        return given_back(ops.exp(log(*args)._value), False, *args)

    return SimpleNamespace(**{f"log{kind}": log, kind: plain})


NAMES: dict[str, Any] = {
    name: _distribution(name) for name in (*densities.CONTINUOUS, *densities.DISCRETE)
}
for _name, _kind in (("dirichlet", "pdf"), ("multivariate_normal", "pdf"), ("multinomial", "pmf")):
    NAMES[_name] = _vectors(_name, getattr(densities, _name), _kind)


def sem(a: Any, axis: int | None = 0, ddof: int = 1, nan_policy: str = "propagate", *,
        keepdims: bool = False) -> Array:  # fmt: skip
    """The standard error of the mean."""
    x = one("sem", a, types.inexact)
    n = reductions.count(x, axis, None)
    return given_back(reductions.std(x, axis, ddof=ddof, keepdims=keepdims) / n**0.5, False, a)


NAMES.update(sem=sem)
globals().update(NAMES)
__all__ = list(NAMES)
