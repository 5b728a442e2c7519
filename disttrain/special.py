"""``dt.special``: functions of mathematics and statistics, under the names of ``torch.special``."""

import sys

from .ops import api
from .ops.functions import special as functions
from .ops.functions.outs import fills
from .ops.functions.polynomials import POLYNOMIALS
from .ops.names import settle
from .ops.primitives import bessel
from .ops.primitives import special as primitives

digamma = psi = api.digamma
erf, erfc, erfcx, erfinv = api.erf, api.erfc, fills(primitives.erfcx), api.erfinv
exp2, expit, expm1, log1p = api.exp2, api.sigmoid, api.expm1, api.log1p
gammainc, gammaincc, gammaln = api.igamma, api.igammac, api.lgamma
i0, i0e, i1, i1e = api.i0, *map(fills, (primitives.i0e, primitives.i1, primitives.i1e))
log_softmax, logsumexp, softmax = api.log_softmax, api.logsumexp, api.softmax
logit, multigammaln, polygamma = api.logit, api.mvlgamma, api.polygamma
ndtr, log_ndtr, ndtri = fills(functions.ndtr), fills(primitives.log_ndtr), fills(primitives.ndtri)
round, sinc, xlogy = api.round, api.sinc, api.xlogy  # noqa: A001
entr, xlog1py, zeta = map(fills, (primitives.entr, functions.xlog1py, functions.zeta))
airy_ai, spherical_bessel_j0 = fills(bessel.airy_ai), fills(bessel.spherical_bessel_j0)
bessel_j0, bessel_j1 = fills(bessel.bessel_j0), fills(bessel.bessel_j1)
bessel_y0, bessel_y1 = fills(bessel.bessel_y0), fills(bessel.bessel_y1)
modified_bessel_i0, modified_bessel_i1 = map(fills, functions.MODIFIED_FIRST_KIND)
modified_bessel_k0 = fills(bessel.modified_bessel_k0)
modified_bessel_k1 = fills(bessel.modified_bessel_k1)
scaled_modified_bessel_k0 = fills(bessel.scaled_modified_bessel_k0)
scaled_modified_bessel_k1 = fills(bessel.scaled_modified_bessel_k1)
chebyshev_polynomial_t = fills(POLYNOMIALS["chebyshev_polynomial_t"])
chebyshev_polynomial_u = fills(POLYNOMIALS["chebyshev_polynomial_u"])
chebyshev_polynomial_v = fills(POLYNOMIALS["chebyshev_polynomial_v"])
chebyshev_polynomial_w = fills(POLYNOMIALS["chebyshev_polynomial_w"])
hermite_polynomial_h = fills(POLYNOMIALS["hermite_polynomial_h"])
hermite_polynomial_he = fills(POLYNOMIALS["hermite_polynomial_he"])
laguerre_polynomial_l = fills(POLYNOMIALS["laguerre_polynomial_l"])
legendre_polynomial_p = fills(POLYNOMIALS["legendre_polynomial_p"])
shifted_chebyshev_polynomial_t = fills(POLYNOMIALS["shifted_chebyshev_polynomial_t"])
shifted_chebyshev_polynomial_u = fills(POLYNOMIALS["shifted_chebyshev_polynomial_u"])
shifted_chebyshev_polynomial_v = fills(POLYNOMIALS["shifted_chebyshev_polynomial_v"])
shifted_chebyshev_polynomial_w = fills(POLYNOMIALS["shifted_chebyshev_polynomial_w"])
settle(sys.modules[__name__])

_TEXTS = """
airy_ai: Airy's function Ai, the solution of y'' = x y that falls to 0.
bessel_j0: The Bessel function of the first kind of order 0.
bessel_j1: The Bessel function of the first kind of order 1.
bessel_y0: The Bessel function of the second kind of order 0.
bessel_y1: The Bessel function of the second kind of order 1.
entr: -x log(x), 0 at 0, and -inf below it.
erfcx: exp(x²) erfc(x), the complementary error function without its fall.
i0e: The modified Bessel function of the first kind of order 0, times exp(-|x|).
i1: The modified Bessel function of the first kind of order 1.
i1e: The modified Bessel function of the first kind of order 1, times exp(-|x|).
log_ndtr: The logarithm of the area under the normal distribution up to x.
modified_bessel_i0: The modified Bessel function of the first kind of order 0; no derivatives.
modified_bessel_i1: The modified Bessel function of the first kind of order 1; no derivatives.
modified_bessel_k0: The modified Bessel function of the second kind of order 0.
modified_bessel_k1: The modified Bessel function of the second kind of order 1.
ndtri: Up to where the area under the normal distribution is x.
scaled_modified_bessel_k0: The modified Bessel function of the second kind of order 0, times exp(x).
scaled_modified_bessel_k1: The modified Bessel function of the second kind of order 1, times exp(x).
spherical_bessel_j0: sin(x) / x, the spherical Bessel function of order 0.
xlog1py: input * log1p(other), 0 where input is 0 and other is not nan.
zeta: Hurwitz' zeta function, the sum of 1 / (other + k)**input over k from 0 on.
"""
for _line in _TEXTS.split("\n")[1:-1]:
    _name, _, _text = _line.partition(": ")
    globals()[_name].__doc__ = _text

__all__ = [
    "airy_ai",
    "bessel_j0",
    "bessel_j1",
    "bessel_y0",
    "bessel_y1",
    "chebyshev_polynomial_t",
    "chebyshev_polynomial_u",
    "chebyshev_polynomial_v",
    "chebyshev_polynomial_w",
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfcx",
    "erfinv",
    "exp2",
    "expit",
    "expm1",
    "gammainc",
    "gammaincc",
    "gammaln",
    "hermite_polynomial_h",
    "hermite_polynomial_he",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "laguerre_polynomial_l",
    "legendre_polynomial_p",
    "log1p",
    "log_ndtr",
    "log_softmax",
    "logit",
    "logsumexp",
    "modified_bessel_i0",
    "modified_bessel_i1",
    "modified_bessel_k0",
    "modified_bessel_k1",
    "multigammaln",
    "ndtr",
    "ndtri",
    "polygamma",
    "psi",
    "round",
    "scaled_modified_bessel_k0",
    "scaled_modified_bessel_k1",
    "shifted_chebyshev_polynomial_t",
    "shifted_chebyshev_polynomial_u",
    "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w",
    "sinc",
    "softmax",
    "spherical_bessel_j0",
    "xlog1py",
    "xlogy",
    "zeta",
]
