"""Elementwise primitives: one number in, one number out, broadcasting."""

from __future__ import annotations

import cmath
import math
from typing import Any

import numpy as np

from ... import core
from ...backends.fused import copies
from ...backends.fused import elementwise as kernels
from ...backends.lang import expr as ex
from ...core.annotations import Value
from ...core.gate import Primitive
from ...core.types import dtypes
from ...core.types.wide import log1p_of, within
from ...errors import DTypeError, NumberError
from ..declare import binary, broadcast, primitive, type_of, unary
from ..promotion import convert, fitted, no_bool, result_type, same_type_args, scalar
from .aliases import real

_TWO_OVER_SQRT_PI = 2.0 / math.sqrt(math.pi)


def H(x: Any) -> Any:  # noqa: N802  (the adjoint's usual letter)
    """The conjugate of ``x`` where it is complex (gradients are conjugate Wirtinger ones)."""
    if not hasattr(x, "dtype"):
        return x.conjugate() if isinstance(x, complex) else x
    if isinstance(x.dtype, dtypes.dtype):
        return conj(x) if x.dtype.is_complex else x
    return x.conj() if x.dtype.kind == "c" else x


def nothing(g: Value) -> Any:
    """Zeros like ``g``, also where that is infinite or nan."""
    return cast_like(ne(g, g), g) * 0


def _positive(rng: np.random.Generator) -> list:
    return [((rng.uniform(0.5, 2.0, (3, 4)),), {})]


def _unit(rng: np.random.Generator) -> list:
    return [((rng.uniform(-0.9, 0.9, (3, 4)),), {})]


# --- one tensor -------------------------------------------------------------------------------
neg = unary("neg", np.negative, lambda g: -g, expr=lambda a: -a)
conj: Primitive = unary("conj", np.conjugate, lambda g: conj(g))
_REAL, _NUMBER = "biufV", "iufVc"  # kinds of numbers: those in order; all but booleans
absolute = unary(
    "abs", np.absolute, lambda g, a: g * sgn(a), expr=lambda a: ex.abs(a), takes=_NUMBER
)
absolute.shape = lambda a: (a.shape, _real_part(a.dtype))


def _real_part(kind: np.dtype) -> np.dtype:
    return np.dtype(f"f{kind.itemsize // 2}") if kind.kind == "c" else kind


def _sign_rule(g: Value, a: Value, out: Value) -> Any:
    """Zero for real numbers. Complex ones turn on the unit circle: g without its part along out."""
    if _real(g):
        return nothing(g)
    size = absolute(a)
    return (g - out * real(H(out) * g)) / where(size == 0, 1.0, size)


def _sign(a: Any) -> Any:  # 0 for nan, as for what is neither above nor below zero
    out = a.copy() if a.dtype.kind == "b" else np.sign(a)
    return np.where(np.isnan(out), 0, out).astype(a.dtype) if a.dtype.kind in "fV" else out


sign = unary("sign", _sign, nothing, takes=_REAL)
sgn: Primitive = unary("sgn", _sign, _sign_rule)
sgn.jvp = lambda a, t, params: _sign_rule(t[0], a[0], sgn(a[0]))  # (its own adjoint)
exp = unary("exp", kernels.exp_, lambda g, out: g * H(out), expr=lambda a: ex.exp(a), floating=True)
exp2 = unary("exp2", np.exp2, lambda g, out: g * H(out) * math.log(2.0), floating=True)
expm1 = unary("expm1", np.expm1, lambda g, out: g * (H(out) + 1), floating=True)
log = unary(
    "log", kernels.log, lambda g, a: g / H(a), expr=lambda a: ex.log(a), floating=True,
    samples=_positive,
)  # fmt: skip
log2 = unary(
    "log2", np.log2, lambda g, a: g / (H(a) * math.log(2.0)), floating=True, samples=_positive
)
log10 = unary(
    "log10", np.log10, lambda g, a: g / (H(a) * math.log(10.0)), floating=True, samples=_positive
)
log1p = unary("log1p", log1p_of, lambda g, a: g / (H(a) + 1), floating=True, samples=_positive)
sqrt = unary(
    "sqrt", np.sqrt, lambda g, out: g * 0.5 / H(out), expr=lambda a: ex.sqrt(a), floating=True,
    samples=_positive,
)  # fmt: skip
rsqrt = unary(
    "rsqrt", lambda a: 1 / np.sqrt(a), lambda g, out: g * -0.5 * H(out * out * out),
    expr=lambda a: ex.rsqrt(a), floating=True, samples=_positive,
)  # fmt: skip


def _counted(args: tuple) -> tuple:
    """Booleans as integers."""
    (a,) = args
    return convert(args, dtypes.int64) if a.meta()[1].kind == "b" else args


square = unary(
    "square", np.square, lambda g, a: g * 2 * H(a), expr=lambda a: a * a, promote=_counted
)
reciprocal = unary(
    "reciprocal", lambda a: 1 / a, lambda g, out: -g * H(out * out), expr=lambda a: 1.0 / a,
    floating=True, samples=_positive,
)  # fmt: skip
sin = unary("sin", np.sin, lambda g, a: g * H(cos(a)), expr=lambda a: ex.sin(a), floating=True)
cos: Primitive = unary(
    "cos", np.cos, lambda g, a: -g * H(sin(a)), expr=lambda a: ex.cos(a), floating=True
)
tan = unary("tan", np.tan, lambda g, out: g * (1 + H(out * out)), floating=True, samples=_unit)
asin = unary("asin", np.arcsin, lambda g, a: g * H(rsqrt(1 - a * a)), floating=True, samples=_unit)
acos = unary("acos", np.arccos, lambda g, a: -g * H(rsqrt(1 - a * a)), floating=True, samples=_unit)
atan = unary("atan", np.arctan, lambda g, a: g / (1 + H(a * a)), floating=True)
sinh = unary("sinh", np.sinh, lambda g, a: g * H(cosh(a)), floating=True)
cosh: Primitive = unary("cosh", np.cosh, lambda g, a: g * H(sinh(a)), floating=True)
asinh = unary("asinh", np.arcsinh, lambda g, a: g * H(rsqrt(a * a + 1)), floating=True)
acosh = unary(
    "acosh", np.arccosh, lambda g, a: g * H(rsqrt(a - 1) * rsqrt(a + 1)), floating=True,
    samples=lambda rng: [((rng.uniform(1.5, 3.0, (3, 4)),), {})],
)  # fmt: skip
atanh = unary("atanh", np.arctanh, lambda g, a: g / (1 - H(a * a)), floating=True, samples=_unit)
tanh = unary(
    "tanh", kernels.tanh, lambda g, out: g * (1 - H(out * out)), expr=lambda a: ex.tanh(a),
    floating=True,
)  # fmt: skip


sigmoid = unary(
    "sigmoid", kernels.logistic, lambda g, out: g * H((1 - out) * out),
    expr=lambda a: ex.sigmoid(a), floating=True,
)  # fmt: skip


def _floating(fused: Any, other: Any) -> Any:
    """``fused`` for the floating types that it knows, ``other`` for the rest."""
    return lambda a: fused(a) if a.dtype.kind in "fV" else other(a)


relu = unary(
    "relu", _floating(kernels.relu, lambda a: np.maximum(a, 0)),
    lambda g, out: relu_backward(g, out), expr=lambda a: ex.max(a, 0.0), takes="iufV",
)  # fmt: skip
# Where the result is zero the gradient is, but not where it is nan: one pass, and no mask.
relu_backward: Primitive = binary(
    "relu_backward", kernels.relu_backward, lambda g, b: relu_backward(g, b), nothing,
    expr=lambda a, b: ex.where(b <= 0, 0.0, a),
)  # fmt: skip


def _first(a: Any, b: Any) -> Any:
    shape = np.broadcast_shapes(np.shape(a), np.shape(b))
    return a if np.shape(a) == shape else np.array(np.broadcast_to(a, shape))


# ``a``, as a function of ``b`` too, with derivative zero. For results whose slope is a step of
# ``b``: the gradient then depends on ``b``, so that it can be differentiated (to zero).
stepwise = binary(
    "stepwise", _first, lambda g, b: stepwise_backward(g, b), expr=lambda a, b: a,
    samples=lambda rng: [((rng.normal(size=(3, 4)), rng.normal(size=(3, 4))), {})],
)  # fmt: skip
stepwise_backward: Primitive = binary(
    "stepwise_backward", _first, lambda g, b: stepwise_backward(g, b), nothing,
    expr=lambda a, b: a, samples=stepwise.samples,
)  # fmt: skip

erf = unary(
    "erf", kernels.erf, lambda g, a: g * (exp(-(a * a)) * _TWO_OVER_SQRT_PI),
    expr=lambda a: ex.erf(a), floating=True,
)  # fmt: skip
floor = unary("floor", np.floor, nothing, expr=lambda a: ex.floor(a), takes="iufV")
ceil = unary("ceil", np.ceil, nothing, expr=lambda a: ex.ceil(a), takes="iufV")
round_ = unary("round", np.round, nothing, takes="iufV")
trunc = unary("trunc", np.trunc, nothing, takes="iufV")
isnan = unary("isnan", np.isnan, out_bool=True)
isinf = unary("isinf", np.isinf, out_bool=True)
isfinite = unary("isfinite", np.isfinite, out_bool=True)
logical_not = unary("logical_not", np.logical_not, out_bool=True)
bitwise_not = unary("bitwise_not", np.invert)

# --- two ---------------------------------------------------------------------------------------


def _both_positive(rng: np.random.Generator) -> list:
    return [((rng.uniform(0.5, 2.0, (3, 4)), rng.uniform(0.5, 2.0, (4,))), {})]


def _integers(rng: np.random.Generator) -> list:
    return [((rng.integers(0, 9, (3, 4)), rng.integers(1, 9, (4,))), {})]


add = binary("add", np.add, lambda g: g, lambda g: g, expr=lambda a, b: a + b)
sub = binary(
    "sub", np.subtract, lambda g: g, lambda g: -g, expr=lambda a, b: a - b,
    promote=no_bool("sub", same_type_args),
)  # fmt: skip
mul = binary(
    "mul", np.multiply, lambda g, b: g * H(b), lambda g, a: g * H(a), expr=lambda a, b: a * b
)
div = binary(
    "div", np.true_divide, lambda g, b: g / H(b), lambda g, a, b: -g * H(a / (b * b)),
    expr=lambda a, b: a / b, floating=True, samples=_both_positive,
)  # fmt: skip


def _number(x: Any) -> Any:
    """The Python number where a constant was kept as a numpy scalar of a narrow type."""
    return x.item() if isinstance(x, np.generic) else x


def _pow_a(g: Value, a: Any, b: Any) -> Any:
    b = _number(b)
    if not hasattr(b, "dtype"):
        if b == 0:
            return nothing(g)
        return g * H(b * pow_(a, b - 1) if b != 2 else a * 2)
    return g * H(b * where(b == 0, a * 0, pow_(a, b - 1)))


def _pow_b(g: Value, a: Any, b: Any) -> Any:
    """0 where a is 0 and the power does not jump there (b not negative); else g a^b log(a). The
    power is made again: so squares, which need it not, need not keep their result."""
    a = _number(a)
    out = pow_(a, b)
    if not hasattr(a, "dtype"):
        if a == 0:
            return where(b >= 0, nothing(g), g * -math.inf) if _real(g) else nothing(g)
        scale = math.log(a) if not isinstance(a, complex) and a > 0 else cmath.log(a)
        return g * H(out * (math.nan if _real(out) and a < 0 else scale))
    flat = a == 0
    if _real(a) and _real(b):
        flat = logical_and(flat, b >= 0)
    return where(flat, nothing(g), g * H(out * log(where(flat, 1.0, a))))


def _pow(a: Any, b: Any) -> Any:
    """numpy's, and for integers the truncated powers that it refuses."""
    kind = np.result_type(a, b)
    if kind.kind not in "iu":
        if b.__class__ is float and abs(b) == 0.5:
            return np.sqrt(a) if b > 0 else 1 / np.sqrt(a)
        known = ex.POWERS.get(b) if kind.char in "fd" and b.__class__ in (float, int) else None
        return known(a) if known else np.power(a, b)
    if not np.any(np.less(b, 0)):
        return np.power(a, b)
    if not hasattr(b, "dtype"):
        raise NumberError(
            f"pow: integers to the negative integer power {b} given; convert the tensor with "
            ".float() first"
        )
    sign = np.where(b % 2 == 0, 1, a)
    small = np.where(abs(a) == 1, sign, 0)
    return np.where(b >= 0, np.power(a, np.maximum(b, 0)), small).astype(kind)


pow_ = binary(
    "pow", _pow, _pow_a, _pow_b, expr=lambda a, b: ex.pow(a, b), samples=_both_positive,
    takes="iufVc",
)  # fmt: skip


def _tie(g: Value, a: Any, b: Any, loses: Any) -> Any:
    """What a side gets: nothing where it loses, half where both are equal, else all."""
    return g * cast_like(logical_not(loses), g) - g * 0.5 * cast_like(a == b, g)


maximum = binary(
    "maximum", np.maximum,
    lambda g, a, b: _tie(g, a, b, a < b), lambda g, a, b: _tie(g, a, b, b < a),
    expr=lambda a, b: ex.max(a, b), takes=_REAL,
)  # fmt: skip
minimum = binary(
    "minimum", np.minimum,
    lambda g, a, b: _tie(g, a, b, a > b), lambda g, a, b: _tie(g, a, b, b > a),
    expr=lambda a, b: ex.min(a, b), takes=_REAL,
)  # fmt: skip
# Limits: all of the gradient goes to the input unless it is cut.
clip_below = binary(
    "clip_below", np.maximum, lambda g, a, b: where(a >= b, g, 0.0),
    lambda g, a, b: where(a < b, g, 0.0), takes=_REAL,
)  # fmt: skip
clip_above = binary(
    "clip_above", np.minimum, lambda g, a, b: where(a <= b, g, 0.0),
    lambda g, a, b: where(a > b, g, 0.0), takes=_REAL,
)  # fmt: skip


def _whole(name: str, ufunc: Any) -> Any:
    """``ufunc`` of a division, whose integers must not be divided by zero."""

    def forward(a: Any, b: Any) -> Any:
        if np.result_type(a, b).kind in "iu" and not np.all(b):
            raise NumberError(
                f"{name}: ZeroDivisionError: integers are divided by zero; use floating-point "
                "tensors, or make sure that no divisor is 0"
            )
        return ufunc(a, b)

    return forward


def _remainder(a: Any, b: Any) -> Any:
    """With the sign of ``b``; a zero keeps that of ``a``."""
    if np.result_type(a, b).kind not in "fV":
        return np.mod(a, b)
    out = np.fmod(a, b)
    return np.where((out != 0) & ((out < 0) != np.less(b, 0)), out + b, out)


remainder = binary(
    "remainder", _whole("remainder", _remainder), lambda g: g, lambda g, a, b: -g * floor(a / b),
    samples=_both_positive, takes="iufV",
)  # fmt: skip
fmod = binary(
    "fmod", _whole("fmod", np.fmod), lambda g: g, lambda g, a, b: -g * trunc(a / b),
    samples=_both_positive, takes="iufV",
)  # fmt: skip
floor_divide = binary(
    "floor_divide", _whole("floor_divide", np.floor_divide), nothing, nothing,
    samples=_both_positive, takes="iufV",
)  # fmt: skip


def _truncated(a: Any, b: Any) -> Any:
    """The quotient rounded towards zero; of integers without a detour over floats."""
    if np.result_type(a, b).kind in "iu":
        down = np.floor_divide(a, b)
        return down + ((down < 0) & (down * b != a))
    return np.trunc(np.true_divide(a, b))


truncate_divide = binary(
    "truncate_divide", _whole("div", _truncated), nothing, nothing,
    samples=_both_positive, takes="iufV",
)  # fmt: skip
for _division in (remainder, fmod, floor_divide, truncate_divide):
    _division.checks = True


def _angle_rule(g: Value, a: Value, b: Value, part: Value) -> Any:
    """``g part / (a^2 + b^2)``, 0 at the origin."""
    size = a * a + b * b
    return where(size == 0, nothing(g), g * part / where(size == 0, 1.0, size))


atan2 = binary(
    "atan2", np.arctan2, lambda g, a, b: _angle_rule(g, a, b, b),
    lambda g, a, b: _angle_rule(g, a, b, -a), floating=True, samples=_both_positive,
    takes="fV",
)  # fmt: skip


def _logaddexp(a: Any, b: Any) -> Any:
    if np.result_type(a, b).kind != "c":
        return np.logaddexp(a, b)
    kind = np.result_type(a, b)
    a, b = np.broadcast_arrays(a, b)
    ahead = np.greater_equal(np.real(a), np.real(b))
    high, low = np.where(ahead, a, b), np.where(ahead, b, a)
    out = np.asarray(high + np.log1p(np.exp(low - high)))
    if np.any(same := (high.real == low.real) & np.isinf(high.real)):
        out[same] = np.where(high.real < 0, low, np.log(np.exp(a) + np.exp(b)))[same]
    out[np.isnan(a) | np.isnan(b)] = complex(math.nan, math.nan)
    return out.astype(kind, copy=False)


# From the inputs: a result that was written to afterwards is of no consequence.
logaddexp = binary(
    "logaddexp", _logaddexp, lambda g, a, b: g / H(exp(b - a) + 1),
    lambda g, a, b: g / H(exp(a - b) + 1), takes="fVc",
)  # fmt: skip


def _xlogy(a: Any, b: Any) -> Any:
    with np.errstate(divide="ignore"):
        return np.where((np.asarray(a) == 0) & ~np.isnan(b), 0, a * np.log(b)).astype(
            np.result_type(a, b), copy=False
        )


xlogy: Primitive = binary(
    "xlogy", _xlogy,
    lambda g, a, b: g * xlogy((a != 0) | (b > 0), b),
    lambda g, a, b: g * a / b, floating=True, takes="fV", samples=_both_positive,
)  # fmt: skip

eq = binary("eq", np.equal, out_bool=True)
ne = binary("ne", np.not_equal, out_bool=True)
lt = binary("lt", np.less, out_bool=True, expr=lambda a, b: a < b, takes=_REAL)
le = binary("le", np.less_equal, out_bool=True, expr=lambda a, b: a <= b, takes=_REAL)
gt = binary("gt", np.greater, out_bool=True, expr=lambda a, b: a > b, takes=_REAL)
ge = binary("ge", np.greater_equal, out_bool=True, expr=lambda a, b: a >= b, takes=_REAL)
logical_and = binary("logical_and", np.logical_and, out_bool=True)
logical_or = binary("logical_or", np.logical_or, out_bool=True)
logical_xor = binary("logical_xor", np.logical_xor, out_bool=True)
bitwise_and = binary("bitwise_and", np.bitwise_and, samples=_integers)
bitwise_or = binary("bitwise_or", np.bitwise_or, samples=_integers)
bitwise_xor = binary("bitwise_xor", np.bitwise_xor, samples=_integers)
left_shift = binary("left_shift", np.left_shift, samples=_integers, takes="iu")
right_shift = binary("right_shift", np.right_shift, samples=_integers, takes="iu")

# --- three -------------------------------------------------------------------------------------


def _where_args(args: tuple) -> tuple:
    condition, a, b = args
    mask = condition.meta()[1]
    if mask.kind != "b":
        if mask != np.uint8:
            raise DTypeError(
                f"where: a condition of {condition.dtype!r} given; it must be boolean: compare, or "
                "use .bool()"
            )
        condition = core.Algebra.cast(condition, np.dtype(bool))
    a, b = (x if hasattr(x, "_node") else scalar(x) for x in (a, b))
    kind = result_type(a, b)
    if kind.np.kind in "iu":
        a, b = (x if hasattr(x, "_node") else fitted("where", x, kind) for x in (a, b))
    return (condition, *convert((a, b), kind))


where: Primitive = primitive(
    "where",
    np.where,
    "condition a b",
    vjp={
        "a": lambda g, condition: where(condition, g, 0.0 if _real(g) else 0j),
        "b": lambda g, condition: where(condition, 0.0 if _real(g) else 0j, g),
    },
    shape=lambda condition, a, b: (broadcast(condition, a, b), type_of(a, b)),
    expr=lambda c, a, b: ex.where(c, a, b),
    promote=_where_args,
    samples=lambda rng: [
        ((rng.random((3, 4)) > 0.5, rng.normal(size=(3, 4)), rng.normal(size=(4,))), {})
    ],
)
where.elementwise = True


def _real(g: Value) -> bool:
    kind = g.dtype
    return not kind.is_complex if isinstance(kind, dtypes.dtype) else kind.kind != "c"


def _clip(a: Any, low: Any = None, high: Any = None) -> Any:
    out = np.clip(a, low, high)
    return out.astype(a.dtype) if a.dtype.kind == "V" else out  # numpy widens those


def _clip_rule(g: Value, a: Value, low: Any, high: Any) -> Any:
    inside = (a >= low) if low is not None else None
    if high is not None:
        below = a <= high
        inside = below if inside is None else logical_and(inside, below)
    return where(inside, g, 0.0)


clip: Primitive = primitive(
    "clip", _clip, "a", vjp={"a": _clip_rule}, shape=lambda a, low, high: (a.shape, a.dtype),
    samples=lambda rng: [((rng.normal(size=(3, 4)),), {"low": -0.5, "high": 0.5})],
)  # fmt: skip
clip.elementwise = True

# --- types -------------------------------------------------------------------------------------


def _cast(a: Any, dtype: np.dtype) -> Any:
    if a.dtype.kind == "c" and dtype.kind != "c":
        a = a.real if dtype.kind != "b" else a != 0
    return within(a, dtype).astype(dtype)


cast: Primitive = primitive(
    "cast", _cast, "a", vjp={"a": lambda g: g}, jvp="linear",
    shape=lambda a, dtype: (a.shape, dtype),
    samples=lambda rng: [((rng.normal(size=(3, 4)),), {"dtype": np.dtype("f8")})],
)  # fmt: skip
cast.elementwise = True


def cast_like(mask: Value, g: Value) -> Any:
    """``mask`` in the type of ``g``; both raw, or both Tensors."""
    kind = g.meta()[1] if hasattr(g, "meta") else g.dtype
    return cast(mask, dtype=kind)


copy: Primitive = primitive(
    "clone", copies.contiguous, "a", vjp={"a": lambda g: g}, jvp="linear",
    shape=lambda a: (a.shape, a.dtype),
)  # fmt: skip
copy.elementwise = True
