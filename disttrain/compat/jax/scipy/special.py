"""``jax.scipy.special``: tables over ``dt.special`` and ``disttrain.arrays.special``."""

from __future__ import annotations

from typing import Any

from .... import special as native
from ....arrays import special
from ....ops import api as ops
from .. import nn, types
from ..array import Array
from ..numpy.lifting import LIFTING, given_back, one

_ONE = """
inexact: digamma erf erfc erfcx erfinv expit entr i0 i0e i1 i1e log_ndtr logit ndtr ndtri gamma
gammasgn factorial spence exp1 expi gammaln loggamma=gammaln
"""
_TWO = """
inexact: beta betaln kl_div rel_entr xlogy xlog1py zeta poch boxcox boxcox1p gammainc gammaincc expn
"""
_SOURCES = (special, native, ops)
NAMES: dict[str, Any] = {
    **LIFTING.elementwise(_ONE, LIFTING.unary, _SOURCES),
    **LIFTING.elementwise(_TWO, LIFTING.binary, _SOURCES),
    **LIFTING.table(". b x -> inexact: betainc!; . k -> inexact: comb!", _SOURCES),
    **{name: nn.NAMES[name] for name in ("logsumexp", "softmax", "log_softmax")},
}


def multigammaln(a: Any, d: int) -> Array:
    """The logarithm of the gamma function of matrices of size d."""
    return given_back(native.multigammaln(one("multigammaln", a, types.inexact), d))  # type: ignore[no-any-return]


def polygamma(n: Any, x: Any) -> Array:
    """The n-th derivative of digamma."""
    return given_back(native.polygamma(int(n), one("polygamma", x, types.inexact)))  # type: ignore[no-any-return]


NAMES.update(multigammaln=multigammaln, polygamma=polygamma)
globals().update(NAMES)
__all__ = list(NAMES)
