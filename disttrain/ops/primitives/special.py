"""Elementwise primitives that numpy lacks: gamma functions, inverse and complementary error
functions, Bessel functions, and a few of two numbers.

Computed in float64 and rounded. Sources: asymptotic series and reflection for digamma and polygamma
(Abramowitz and Stegun, 6.3, 6.4, 23.2), series and continued fraction for the incomplete gamma
functions (ibid. 6.5), Giles' approximation with Newton steps for erfinv (GPU Computing Gems, 2010).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.annotations import Value
from ...core.gate import Primitive
from ...errors import AutogradError
from ..declare import binary, primitive, unary
from .elementwise import cast_like, eq, exp, exp2, log, ne, nothing, sign, where

_BERNOULLI = [1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510]


def wide(fn: Callable[..., Any]) -> Any:
    """``fn`` of float64 arrays, for every floating type."""

    def run(a: Value, *rest: Value) -> Any:
        if any(x.dtype.kind == "c" for x in (a, *rest) if hasattr(x, "dtype")):
            raise TypeError("not defined for complex numbers")
        others = [np.asarray(r, np.float64) for r in rest]
        with np.errstate(all="ignore"):
            out = fn(np.asarray(a, np.float64), *others)
        return np.asarray(out).astype(a.dtype if hasattr(a, "dtype") else rest[0].dtype)

    return run


def _each(fn: Any, poles: float) -> Any:
    def one(x: float) -> float:
        try:
            return fn(x)
        except (ValueError, OverflowError):
            return poles

    many = np.frompyfunc(one, 1, 1)
    return lambda a: np.asarray(many(a), np.float64)


def _digamma(x: np.ndarray) -> Any:
    low = x < 0
    y = np.where(low, 1 - x, x)
    total = np.zeros_like(y)
    for _ in range(10):
        small = y < 10
        total = np.where(small, total - 1 / y, total)
        y = np.where(small, y + 1, y)
    series = np.log(y) - 0.5 / y
    for k, b in enumerate(_BERNOULLI, 1):
        series = series - b / (2 * k * y ** (2 * k))
    out = total + series
    turned = out - np.pi / np.tan(np.pi * (x - np.round(x)))  # (near a pole x keeps its digits)
    out = np.where(low, np.where(x == np.floor(x), np.nan, turned), out)
    return np.where(x == 0, np.copysign(np.inf, -x), out)


digamma_values = _digamma  # of float64 arrays


def _zeta(s: Any, x: np.ndarray) -> Any:
    """Hurwitz' zeta function for s > 1 and x > 0, by Euler and Maclaurin."""
    total = np.zeros_like(x)
    for k in range(12):
        total = total + (x + k) ** -s
    y = x + 12
    total = total + y ** (1.0 - s) / (s - 1) + 0.5 * y**-s
    rising = s * 1.0
    for k, b in enumerate(_BERNOULLI, 1):
        total = total + b * rising / math.factorial(2 * k) * y ** (-s - 2 * k + 1)
        rising *= (s + 2 * k - 1) * (s + 2 * k)
    return total


def _polygamma(a: np.ndarray, n: int) -> Any:
    if n == 0:
        return wide(_digamma)(a)
    return wide(lambda x: _derived(x, n))(a)


def _derived(x: np.ndarray, n: int) -> Any:
    """The derivative number ``n`` of digamma; below 0 by reflection, that of the cotangent."""
    sign, low = (-1.0) ** (n + 1), x < 0
    right = sign * math.factorial(n) * _zeta(n + 1, np.where(low, 1 - x, x))
    slope = np.polynomial.Polynomial([0.0, 1.0])  # in terms of the cotangent
    for _ in range(n):
        slope = slope.deriv() * np.polynomial.Polynomial([-1.0, 0.0, -1.0])
    turned = -(np.pi ** (n + 1)) * slope(1 / np.tan(np.pi * (x - np.round(x)))) - sign * right
    return np.where(low, np.where(x == np.floor(x), sign * np.inf, turned), right)


_erf, _erfc = _each(math.erf, math.nan), _each(math.erfc, math.nan)


def _erfinv(y: np.ndarray) -> Any:
    w = -np.log((1 - y) * (1 + y))
    near = w - 2.5
    p = np.polyval(
        [2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
         -0.00125372503, -0.00417768164, 0.246640727, 1.50140941], near,
    )  # fmt: skip
    far = np.sqrt(w) - 3
    q = np.polyval(
        [-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
         -0.0076224613, 0.00943887047, 1.00167406, 2.83297682], far,
    )  # fmt: skip
    x = np.where(w < 5, p, q) * y
    for _ in range(2):
        finite = np.isfinite(x)
        safe = np.where(finite, x, 0.0)
        # Near the ends through erfc, which keeps its digits there.
        miss = np.where(safe > 0, (1 - y) - _erfc(np.abs(safe)), _erfc(np.abs(safe)) - (1 + y))
        x = np.where(finite, x - miss / (2 / math.sqrt(math.pi) * np.exp(-safe * safe)), x)
    x = np.where(np.abs(y) == 1, np.copysign(np.inf, y), x)
    return np.where(np.abs(y) > 1, np.nan, x)


def _erfcx(x: np.ndarray) -> Any:
    """exp(x²) erfc(x): from 3 on by Laplace's continued fraction (7.1.14)."""
    far = np.maximum(x, 3.0)
    tail = far.copy()
    for k in range(80, 0, -1):
        tail = far + k / 2 / tail
    near = np.minimum(x, 3.0)
    out = np.where(x < 3, np.exp(near * near) * _erfc(near), 1 / (math.sqrt(math.pi) * tail))
    return np.where(np.isnan(x), x, out)


def _log_ndtr(x: np.ndarray) -> Any:
    root = math.sqrt(0.5)
    low = np.log(_erfcx(-np.minimum(x, -1.0) * root) / 2) - np.minimum(x, -1.0) ** 2 / 2
    return np.where(x < -1, low, np.log1p(-_erfc(np.maximum(x, -1.0) * root) / 2))


def _ndtri(p: np.ndarray) -> Any:
    """By Newton's steps on the logarithm, from where the tail begins (26.2.23)."""
    least = np.minimum(p, 1 - p)
    wanted = np.log(least)
    t = np.sqrt(-2 * wanted)
    z = -(t - (2.515517 + 0.802853 * t + 0.010328 * t * t)
          / (1 + 1.432788 * t + 0.189269 * t * t + 0.001308 * t**3))  # fmt: skip
    for _ in range(4):
        slope = math.sqrt(2 / math.pi) / _erfcx(-z * math.sqrt(0.5))
        step = (_log_ndtr(z) - wanted) / slope
        z = z - np.where(np.isfinite(step), step, 0.0)
    out = np.where(p == 0.5, 0.0, np.where(p < 0.5, z, -z))
    out = np.where(p == 0, -np.inf, np.where(p == 1, np.inf, out))
    return np.where((p >= 0) & (p <= 1), out, np.nan)


def _hurwitz(s: np.ndarray, q: np.ndarray) -> Any:
    """The sum of (q + k)**-s: what it is where it is infinite or unknown, too."""
    s, q = np.broadcast_arrays(s, q)
    steps = int(np.clip(np.nanmax(-q, initial=0.0), 0, _MOST_STEPS)) + 1
    known = (s > 1) & ((q > 0) | ((q != np.floor(q)) & (s == np.floor(s)) & (-q < _MOST_STEPS)))
    order, start = np.where(known, s, 2.0), np.where(known, q, 1.0)
    total = np.zeros_like(start)
    for _ in range(steps if (start < 0).any() else 0):
        below = start < 0
        total = total + np.where(below, start**-order, 0.0)
        start = np.where(below, start + 1, start)
    out = np.where(known, total + _zeta(order, start), np.nan)
    pole = (s == 1) | ((s > 1) & (q <= 0) & (q == np.floor(q)))
    return np.where(np.isnan(s) | np.isnan(q), np.nan, np.where(pole, np.inf, out))


_MOST_STEPS = 100_000  # how far below 0 Hurwitz' function is summed up


def _scaled_bessel(order: int) -> Callable[[np.ndarray], Any]:
    """The modified Bessel function of the first kind over exp(|x|): by its power series, and far
    from 0 by the asymptotic one (Abramowitz and Stegun, 9.6.10 and 9.7.1)."""

    def run(x: np.ndarray) -> Any:
        size = np.abs(x)
        half = np.minimum(size, 30.0) / 2
        term = half**order
        total = term.copy()
        for k in range(1, 80):
            term = term * half * half / (k * (k + order))
            total = total + term
        big = np.maximum(size, 30.0)
        tail, step = np.ones_like(big), np.ones_like(big)
        for k in range(1, 12):
            step = step * -(4.0 * order * order - (2 * k - 1) ** 2) / (k * 8 * big)
            tail = tail + step
        out = np.where(
            size <= 30, total * np.exp(-2 * half), tail / (math.sqrt(2 * np.pi) * np.sqrt(big))
        )
        return np.where(np.isnan(x), x, np.copysign(out, x) if order else out)

    return run


def _i1(x: np.ndarray) -> Any:
    return _scaled_bessel(1)(x) * np.exp(np.abs(x))


def _gammas(a: np.ndarray, x: np.ndarray) -> tuple[Any, Any]:
    """The lower and the upper incomplete gamma function, over the gamma function: each by what
    keeps its digits where it is small."""
    a, x = np.broadcast_arrays(a, x)
    front = np.exp(a * np.log(x) - x - _each(math.lgamma, math.inf)(a))
    term = 1 / a
    total, n = term.copy(), a.copy()
    for _ in range(300):
        n = n + 1
        term = term * x / n
        total = total + term
    lower = front * total
    b = x + 1 - a
    c, d = np.full_like(x, 1e300), 1 / np.where(b == 0, 1e-300, b)
    h = d.copy()
    for i in range(1, 300):
        an = -i * (i - a)
        b = b + 2
        d = an * d + b
        d = 1 / np.where(d == 0, 1e-300, d)
        c = b + an / c
        c = np.where(c == 0, 1e-300, c)
        h = h * d * c
    upper = front * h
    below = x < a + 1
    lower, upper = np.where(below, lower, 1 - upper), np.where(below, 1 - lower, upper)
    if (a >= _LARGE).any():
        lower, upper = (
            np.where(a >= _LARGE, far, near)
            for far, near in zip(_large_gammas(a, x), (lower, upper), strict=True)
        )
    return _at_ends(a, x, lower, 0.0), _at_ends(a, x, upper, 1.0)


_LARGE = 1000.0  # from here on the sums of ``_gammas`` are too short
# Of Temme's expansion, about x = a (SIAM J. Math. Anal. 10, 1979, 757-766).
_TEMME = (
    (-1 / 3, 1 / 12, -2 / 135, 1 / 864, 1 / 2835, -139 / 777600, 1 / 25515, -571 / 261273600),
    (-1 / 540, -1 / 288, 1 / 378, -77 / 77760, 1 / 4860),
    (25 / 6048, -139 / 51840, 1 / 1296),
)


def _large_gammas(a: np.ndarray, x: np.ndarray) -> tuple[Any, Any]:
    """The same for a large ``a``, by Temme's uniform expansion."""
    m = x / a - 1
    eta = np.copysign(np.sqrt(2 * np.maximum(m - np.log1p(m), 0.0)), m)
    near = abs(eta) < 0.1
    safe, away = np.where(near, 1.0, eta), np.where(near, 1.0, m)
    close = [np.polynomial.polynomial.polyval(eta, row) for row in _TEMME]
    c0 = np.where(near, close[0], 1 / away - 1 / safe)
    after = safe**-3.0 - away**-3.0 - away**-2.0 - 1 / (12 * away)
    c1, c2 = np.where(near, close[1], after), np.where(near, close[2], 0.0)
    rest = np.exp(-a * eta * eta / 2) / np.sqrt(2 * np.pi * a) * (c0 + (c1 + c2 / a) / a)
    root = eta * np.sqrt(a / 2)
    return _erfc(-root) / 2 - rest, _erfc(root) / 2 + rest


def _at_ends(a: np.ndarray, x: np.ndarray, out: np.ndarray, at_zero: float) -> Any:
    """``out`` but for a and x at 0 and infinity; ``at_zero``: the value where x is 0."""
    out = np.where((x == 0) | np.isposinf(a), at_zero, out)
    out = np.where((np.isposinf(x) & ~np.isposinf(a)) | ((a == 0) & (x > 0)), 1.0 - at_zero, out)
    unknown = (x < 0) | (a < 0) | (np.isposinf(a) & np.isposinf(x)) | ((a == 0) & ~(x > 0))
    return np.where(unknown, np.nan, out)


def _between(low: float, high: float) -> Any:
    return lambda rng: [((rng.uniform(low, high, (3, 4)),), {})]


def _pair(rng: np.random.Generator) -> list:
    return [((rng.uniform(0.5, 3.0, (3, 4)), rng.uniform(0.5, 3.0, (4,))), {})]


def _over(out: Any, a: Any) -> Any:
    """``out`` / ``a``, and 1/2 where ``a`` is 0."""
    return where(a == 0, a * 0 + 0.5, out / where(a == 0, a * 0 + 1, a))


lgamma: Primitive = unary(
    "lgamma", wide(_each(math.lgamma, math.inf)), lambda g, a: g * polygamma(a, n=0),
    floating=True, samples=_between(0.5, 4.0),
)  # fmt: skip
polygamma: Primitive = primitive(
    "polygamma", _polygamma, "a", vjp={"a": lambda g, a, n: g * polygamma(a, n=n + 1)},
    shape=lambda a, n: (a.shape, a.dtype),
    samples=lambda rng: [((rng.uniform(0.5, 4.0, (3, 4)),), {"n": n}) for n in (0, 1, 2)],
)  # fmt: skip
polygamma.elementwise = True
erfc: Primitive = unary(
    "erfc", wide(_erfc), lambda g, a: g * (exp(-(a * a)) * (-2 / math.sqrt(math.pi))),
    floating=True,
)  # fmt: skip
erfinv: Primitive = unary(
    "erfinv", wide(_erfinv),
    lambda g, a: g * (exp(erfinv(a) * erfinv(a)) * (math.sqrt(math.pi) / 2)),
    floating=True, samples=_between(-0.9, 0.9),
)  # fmt: skip
i0: Primitive = unary("i0", wide(np.i0), lambda g, a: g * i1(a), floating=True)
i1: Primitive = unary(
    "i1", wide(_i1),
    lambda g, a, out: g * (i0(a) - _over(out, a)),
    floating=True,
)  # fmt: skip


i0e: Primitive = unary(
    "i0e", wide(_scaled_bessel(0)), lambda g, a, out: g * (i1e(a) - sign(a) * out), floating=True,
)  # fmt: skip
i1e: Primitive = unary(
    "i1e", wide(_scaled_bessel(1)),
    lambda g, a, out: g * (i0e(a) - sign(a) * out - _over(out, a)), floating=True,
)  # fmt: skip


def _no_derivative(name: str, which: str) -> Any:
    """A rule that refuses: a gradient that is silently 0 would be worse."""

    def rule(g: np.ndarray) -> Any:
        raise AutogradError(
            f"{name}: the derivative by its {which} argument is not implemented, nor is it in "
            "PyTorch; detach() that argument"
        )

    return rule


erfcx: Primitive = unary(
    "erfcx", wide(_erfcx), lambda g, a, out: g * (2 * a * out - 2 / math.sqrt(math.pi)),
    floating=True, takes="f4 f8",
)  # fmt: skip
log_ndtr: Primitive = unary(
    "log_ndtr", wide(_log_ndtr),
    lambda g, a: g * (math.sqrt(2 / math.pi) / erfcx(a * -math.sqrt(0.5))),
    floating=True, takes="f4 f8",
)  # fmt: skip
ndtri: Primitive = unary(
    "ndtri", wide(_ndtri), lambda g, out: g * (math.sqrt(2 * math.pi) * exp(out * out / 2)),
    floating=True, takes="f4 f8", samples=_between(0.1, 0.9),
)  # fmt: skip


def _entr(x: np.ndarray) -> Any:
    out = np.where(x > 0, -x * np.log(np.where(x > 0, x, 1.0)), np.where(x == 0, 0.0, -np.inf))
    return np.where(np.isnan(x), x, out)


entr: Primitive = unary(
    "entr", wide(_entr), lambda g, a: g * where(a >= 0, -log(a) - 1, a * 0 + math.nan),
    floating=True, takes="fV", samples=_between(0.5, 3.0),
)  # fmt: skip


def _xlog1py(a: np.ndarray, b: np.ndarray) -> Any:
    return np.where((a == 0) & ~np.isnan(b), 0.0, a * np.log1p(b))


xlog1py: Primitive = binary(
    "xlog1py", wide(_xlog1py), lambda g, a, b: g * xlog1py(cast_like((a != 0) | (b > -1), g), b),
    lambda g, a, b: g * a / (b + 1), floating=True, takes="fV", samples=_pair,
)  # fmt: skip
zeta: Primitive = binary(
    "zeta", wide(_hurwitz), _no_derivative("zeta", "first"),
    lambda g, a, b: g * (-a * zeta(a + 1, b)), floating=True, takes="f4 f8",
    samples=lambda rng: [((rng.uniform(1.5, 4.0, (3, 4)), rng.uniform(0.5, 3.0, (4,))), {})],
)  # fmt: skip
igamma: Primitive = binary(
    "igamma", wide(lambda a, x: _gammas(a, x)[0]), _no_derivative("igamma", "first"),
    lambda g, a, b: g * exp((a - 1) * log(b) - b - lgamma(a)), floating=True, samples=_pair,
)  # fmt: skip
igammac: Primitive = binary(
    "igammac", wide(lambda a, x: _gammas(a, x)[1]), _no_derivative("igammac", "first"),
    lambda g, a, b: -g * exp((a - 1) * log(b) - b - lgamma(a)), floating=True, samples=_pair,
)  # fmt: skip
copysign: Primitive = binary(
    "copysign", np.copysign, lambda g, a, out: g * sign(a) * copysign(a * 0 + 1, out),
    nothing, floating=True,
)  # fmt: skip
hypot: Primitive = binary(
    "hypot", np.hypot, lambda g, a, out: g * (a / out), lambda g, b, out: g * (b / out),
    takes="fV", samples=_pair,
)  # fmt: skip


signbit = unary(
    "signbit", lambda a: a < 0 if a.dtype.kind in "biu" else np.signbit(a), out_bool=True,
    takes="biufV",
)  # fmt: skip


def _parted(a: Any) -> Any:
    """Mantissas and exponents (of device arrays, too)."""
    return np.frexp(a.astype(np.float32) if a.dtype.itemsize < 4 else a)


def _by_exponent(g: Any, a: Any) -> Any:
    return g / exp2(cast_like(exponent(a), g))


exponent: Primitive = unary("exponent", lambda a: _parted(a)[1].astype(np.int32), takes="fV")
exponent.shape = lambda a: (a.shape, np.dtype(np.int32))
mantissa = unary("mantissa", lambda a: _parted(a)[0].astype(a.dtype), _by_exponent, takes="fV")


def _heaviside(a: np.ndarray, b: np.ndarray) -> Any:
    return np.where(np.equal(a, 0), b, np.greater(a, 0)).astype(np.result_type(a, b))


heaviside = binary(
    "heaviside", _heaviside, _no_derivative("heaviside", "first"),
    _no_derivative("heaviside", "second"), samples=_pair, takes="biufV",
)  # fmt: skip
nextafter: Primitive = binary(
    "nextafter", np.nextafter, lambda g, a, b: g * cast_like(ne(a, b), g),
    lambda g, a, b: g * cast_like(eq(a, b), g), samples=_pair, takes="fV",
)  # fmt: skip


def _whole(rng: np.random.Generator) -> list:
    return [((rng.integers(1, 30, (3, 4)), rng.integers(1, 30, (4,))), {})]


gcd: Primitive = binary("gcd", np.gcd, samples=_whole, takes="iu")
lcm: Primitive = binary("lcm", np.lcm, samples=_whole, takes="iu")
