"""Special functions that ``dt.special`` has not, from operations of the vocabulary. Series and
continued fractions run a fixed number of steps, enough for the type that they are in."""

from __future__ import annotations

import math

from ..core.tensor import Tensor
from ..ops import api as ops

STEPS = 80
EULER = 0.5772156649015329


def betaln(a: Tensor, b: Tensor) -> Tensor:
    """The logarithm of the beta function."""
    return ops.lgamma(a) + ops.lgamma(b) - ops.lgamma(a + b)


def gammasgn(x: Tensor) -> Tensor:
    """The sign of the gamma function."""
    odd = ops.remainder(ops.floor(x), 2) != 0
    out = ops.where((x < 0) & odd, -1.0, 1.0).to(x.dtype)
    pole = (x < 0) & (x == ops.floor(x))
    out = ops.where(pole | ops.isnan(x), float("nan"), out)
    return ops.where(x == 0, ops.copysign(ops.ones_like(x), x), out)


def gamma(x: Tensor) -> Tensor:
    """The gamma function."""
    return gammasgn(x) * ops.exp(ops.lgamma(x))


def beta(a: Tensor, b: Tensor) -> Tensor:
    """The beta function."""
    sign = gammasgn(a) * gammasgn(b) * gammasgn(a + b)
    return sign * ops.exp(betaln(a, b))


def factorial(n: Tensor, exact: bool = False) -> Tensor:
    """n!, of numbers below 0 it is 0."""
    return ops.where(n < 0, ops.zeros_like(n), ops.exp(ops.lgamma(n + 1)))


def poch(z: Tensor, m: Tensor) -> Tensor:
    """Pochhammer's symbol: gamma(z + m) / gamma(z)."""
    return ops.where(m == 0, ops.ones_like(z), ops.exp(ops.lgamma(z + m) - ops.lgamma(z)))


def binomial(n: Tensor, k: Tensor) -> Tensor:
    """How many subsets of k of n elements there are."""
    out = ops.exp(ops.lgamma(n + 1) - ops.lgamma(k + 1) - ops.lgamma(n - k + 1))
    return ops.where((k < 0) | (k > n), ops.zeros_like(out), out)


def comb(N: Tensor, k: Tensor, exact: bool = False, repetition: bool = False) -> Tensor:  # noqa: N803
    """How many subsets of k of N elements there are (``repetition``: with elements repeated)."""
    return binomial(N + k - 1 if repetition else N, k)


def kl_div(p: Tensor, q: Tensor) -> Tensor:
    """p log(p / q) - p + q, for what is not below 0."""
    return rel_entr(p, q) - p + q


def rel_entr(p: Tensor, q: Tensor) -> Tensor:
    """p log(p / q); 0 for p = 0 and q from 0 on, inf elsewhere outside."""
    both, none = (p > 0) & (q > 0), (p == 0) & (q >= 0)
    one, two = (ops.where(both, x, ops.ones_like(x)) for x in (p, q))
    value = ops.where(both, one * (ops.log(one) - ops.log(two)), float("inf"))
    return ops.where(none, ops.zeros_like(value), value)


def boxcox(x: Tensor, lmbda: Tensor) -> Tensor:
    """(x**lambda - 1) / lambda, log(x) for 0."""
    return _boxcox(ops.log(x), lmbda)


def boxcox1p(x: Tensor, lmbda: Tensor) -> Tensor:
    """``boxcox(1 + x)``."""
    return _boxcox(ops.log1p(x), lmbda)


def _boxcox(log: Tensor, lmbda: Tensor) -> Tensor:
    zero = lmbda == 0
    safe = ops.where(zero, ops.ones_like(lmbda), lmbda)
    return ops.where(zero, log, ops.expm1(safe * log) / safe)


def betainc(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    """The regularized incomplete beta function, by Lentz's fraction (Press et al., 6.4)."""
    turned = x > (a + 1) / (a + b + 2)
    one, two = ops.where(turned, b, a), ops.where(turned, a, b)
    y = ops.where(turned, 1 - x, x)
    inside = (y > 0) & (y < 1)
    y = ops.where(inside, y, ops.full_like(y, 0.5))
    front = ops.exp(one * ops.log(y) + two * ops.log1p(-y) - betaln(one, two)) / one
    value = front * _beta_fraction(one, two, y)
    edge = ops.where(ops.where(turned, 1 - x, x) <= 0, ops.zeros_like(x), ops.ones_like(x))
    value = ops.where(inside, value, edge)
    value = ops.where(turned, 1 - value, value)
    return ops.where((x < 0) | (x > 1) | (a <= 0) | (b <= 0), float("nan"), value)


def _beta_fraction(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    tiny = 1e-30
    c, d = ops.ones_like(x), _away(1 - (a + b) * x / (a + 1), tiny)
    d = 1 / d
    out = d
    for m in range(1, STEPS):
        up = m * (b - m) * x / ((a + (2 * m - 1)) * (a + 2 * m))
        down = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + (2 * m + 1)))
        for part in (up, down):
            d = 1 / _away(1 + part * d, tiny)
            c = _away(1 + part / c, tiny)
            out = out * (c * d)
    return out


def _away(x: Tensor, least: float) -> Tensor:
    return ops.where(ops.abs(x) < least, ops.full_like(x, least), x)


def exp1(x: Tensor) -> Tensor:
    """The integral of exp(-t) / t from x on, x > 0: a series up to 2, a continued fraction beyond
    (Abramowitz and Stegun, 5.1.11 and 5.1.22)."""
    small = x <= 2
    near, far = ops.where(small, x, ops.ones_like(x)), ops.where(small, ops.full_like(x, 2), x)
    total, term = ops.zeros_like(x), ops.ones_like(x)
    for k in range(1, 30):
        term = -term * near / k
        total = total - term / k
    series = -EULER - ops.log(near) + total
    fraction = ops.zeros_like(x)
    for k in range(60, 0, -1):
        fraction = k / (1 + k / (far + fraction))
    value = ops.where(small, series, ops.exp(-far) / (far + fraction))
    value = ops.where(x == 0, float("inf"), value)
    return ops.where(x < 0, float("nan"), value)


def expi(x: Tensor) -> Tensor:
    """The principal value of the integral of exp(t) / t up to x: a series up to 40, the asymptotic
    one beyond (Abramowitz and Stegun, 5.1.10 and 5.1.51)."""
    small = x <= 40
    near, far = (
        ops.where(small & (x > 0), x, ops.ones_like(x)),
        ops.where(small, ops.full_like(x, 41), x),
    )
    total, term = ops.zeros_like(x), ops.ones_like(x)
    for k in range(1, 110):
        term = term * near / k
        total = total + term / k
    series = EULER + ops.log(near) + total
    ratio, term = ops.ones_like(x), ops.ones_like(x)
    for k in range(1, 25):
        term = term * k / far
        ratio = ratio + term
    value = ops.where(small, series, ops.exp(far) / far * ratio)
    below = -exp1(ops.where(x < 0, -x, ops.ones_like(x)))
    value = ops.where(x < 0, below, value)
    return ops.where(x == 0, -float("inf"), value)


def spence(x: Tensor) -> Tensor:
    """The dilogarithm of 1 - x, brought to arguments up to 1/2 (Lewin 1981)."""
    one = math.pi**2 / 6
    big = x > 1
    y = ops.where(big, 1 / ops.where(big, x, ops.ones_like(x)), x)  # Li2(1-x) to 0 <= y <= 1
    low = y < 0.5
    inner = ops.where(low, y, 1 - y)
    total, power = ops.zeros_like(x), ops.ones_like(x)
    for k in range(1, 50):
        power = power * inner
        total = total + power / (k * k)
    pos = ops.where(y > 0, y, ops.ones_like(y))
    inner_log = ops.where(y < 1, ops.log1p(-ops.where(y < 1, y, ops.zeros_like(y))), 0.0)
    mirrored = one - ops.log(pos) * inner_log - total
    value = ops.where(low, mirrored, total)
    log = ops.log(ops.where(big, x, ops.ones_like(x)))
    value = ops.where(big, -0.5 * log * log - value, value)
    return ops.where(x < 0, float("nan"), value)


def expn(n: Tensor, x: Tensor) -> Tensor:
    """The exponential integral of order n, by its continued fraction (x > 0)."""
    out = ops.zeros_like(x)
    for k in range(STEPS, 0, -1):
        out = (n + (k - 1)) / (1 + k / (x + out))
    return ops.exp(-x) / (x + out)
