"""``dt.special``: functions of mathematics and statistics, under the names of ``torch.special``."""

import sys

from .ops import api
from .ops.functions import special as functions
from .ops.functions.outs import fills
from .ops.names import settle
from .ops.primitives import special as primitives

digamma = psi = api.digamma
erf, erfc, erfinv = api.erf, api.erfc, api.erfinv
exp2, expit, expm1, log1p = api.exp2, api.sigmoid, api.expm1, api.log1p
gammainc, gammaincc, gammaln = api.igamma, api.igammac, api.lgamma
i0, i1 = api.i0, fills(primitives.i1)
log_softmax, logsumexp, softmax = api.log_softmax, api.logsumexp, api.softmax
logit, multigammaln, polygamma = api.logit, api.mvlgamma, api.polygamma
ndtr = fills(functions.ndtr)
round, sinc, xlogy = api.round, api.sinc, api.xlogy  # noqa: A001
settle(sys.modules[__name__])

__all__ = [
    "digamma",
    "erf",
    "erfc",
    "erfinv",
    "exp2",
    "expit",
    "expm1",
    "gammainc",
    "gammaincc",
    "gammaln",
    "i0",
    "i1",
    "log1p",
    "log_softmax",
    "logit",
    "logsumexp",
    "multigammaln",
    "ndtr",
    "polygamma",
    "psi",
    "round",
    "sinc",
    "softmax",
    "xlogy",
]
