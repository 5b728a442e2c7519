"""``jax.scipy.special``: a table over ``dt.special`` and ``disttrain.arrays.special``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .... import special as native
from ....arrays import special
from ....ops import api as ops
from .. import nn, types
from ..array import Array
from ..numpy.lifting import binary, given_back, one, operands, unary

_ONE = """
digamma erf erfc erfcx erfinv expit entr i0 i0e i1 i1e log_ndtr logit ndtr ndtri gamma gammasgn
factorial spence exp1 expi gammaln loggamma=gammaln
"""
_TWO = "beta betaln kl_div rel_entr xlogy xlog1py zeta poch boxcox boxcox1p gammainc gammaincc expn"


def _of(name: str) -> Callable:
    return next(getattr(m, name) for m in (special, native, ops) if hasattr(m, name))


NAMES: dict[str, Any] = {}
for _row in _ONE.split():
    _name, _, _source = _row.partition("=")
    NAMES[_name] = unary(_name, _of(_source or _name), types.inexact)
for _name in _TWO.split():
    NAMES[_name] = binary(_name, _of(_name), types.inexact)


def betainc(a: Any, b: Any, x: Any) -> Array:
    """The regularized incomplete beta function."""
    tensors, weak = operands("betainc", (a, b, x), types.inexact)
    return given_back(special.betainc(*tensors), weak)


def comb(N: Any, k: Any, exact: bool = False, repetition: bool = False) -> Array:  # noqa: N803
    """How many subsets of k of N elements there are."""
    (n, m), weak = operands("comb", (N, k), types.inexact)
    return given_back(special.binomial(n + m - 1 if repetition else n, m), weak)


def multigammaln(a: Any, d: int) -> Array:
    """The logarithm of the gamma function of matrices of size d."""
    return given_back(native.multigammaln(one("multigammaln", a, types.inexact), d))


def polygamma(n: Any, x: Any) -> Array:
    """The n-th derivative of digamma."""
    value = one("polygamma", x, types.inexact)
    return given_back(native.polygamma(int(n), value))


NAMES.update(
    betainc=betainc, comb=comb, multigammaln=multigammaln, polygamma=polygamma,
    logsumexp=nn.NAMES["logsumexp"], softmax=nn.NAMES["softmax"],
    log_softmax=nn.NAMES["log_softmax"],
)  # fmt: skip
globals().update(NAMES)
__all__ = list(NAMES)
