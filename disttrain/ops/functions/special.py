"""Public functions less often asked for: special functions, angles, and formulas of products and
of other functions. Torch's names."""

from __future__ import annotations

import functools
import math as _math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.annotations import Operand
from ...core.tensor import Tensor, wrap
from ...core.types import dtypes
from ...core.types.casting import computes_in
from ...errors import ConfigError, DTypeError, ShapeError
from ...trace import warn
from ..primitives import aliases, views
from ..primitives import elementwise as el
from ..primitives import gathering as put_prims
from ..primitives import special as sp
from ..primitives.batching import made_beside
from ..promotion import refuse, result_type, same_type
from . import elementwise as math
from . import gathering, linalg
from .args import broadcast, in_float32, kinds, one_dim
from .args import tensor as as_input
from .index_arrays import bounded

lgamma, erfc, erfinv, i0 = sp.lgamma, sp.erfc, sp.erfinv, sp.i0
copysign, fmod = math.of_a_tensor(sp.copysign), math.of_a_tensor(el.fmod)
hypot, nextafter = math.of_tensors(sp.hypot), math.of_tensors(sp.nextafter)
gcd, lcm = math.of_tensors(sp.gcd), math.of_tensors(sp.lcm)
igamma, igammac = math.of_tensors(sp.igamma), math.of_tensors(sp.igammac)
igamma.__doc__ = "The lower incomplete gamma function of input at other, as a part of the whole."
igammac.__doc__ = "The upper incomplete gamma function of input at other, as a part of the whole."
arccosh, arcsinh, arctanh, arctan2 = el.acosh, el.asinh, el.atanh, math.atan2
bitwise_left_shift, bitwise_right_shift, fix = el.left_shift, el.right_shift, el.trunc


def _floating(input: Tensor) -> Tensor:
    kind = input.dtype
    if kind.is_floating_point or kind.is_complex:
        return input
    return el.cast(input, dtype=dtypes.get_default_dtype().np)


def heaviside(input: Tensor, values: Tensor) -> Tensor:
    """0 below 0, 1 above it, ``values`` at 0; of one type with them."""
    kinds = [as_input(t, "heaviside", n).dtype for t, n in ((input, "input"), (values, "values"))]
    for wrong, what in (
        (any(k.is_complex for k in kinds), "complex tensors"),
        (kinds[0] is not kinds[1], "tensors with different dtypes"),
    ):
        if wrong:
            raise DTypeError(
                f"heaviside: {kinds[0]!r} and {kinds[1]!r} given; heaviside is not yet implemented "
                f"for {what}. Convert them to one real type first"
            )
    return sp.heaviside(input, values)


def signbit(input: Tensor) -> Tensor:
    """Whether the sign is a minus, that of -0.0 too."""
    return sp.signbit(as_input(input, "signbit"))


def isposinf(input: Tensor) -> Tensor:
    """Where ``input`` is inf."""
    kinds("isposinf", "biufV", as_input(input, "isposinf"))
    return el.eq(input, _math.inf)


def isneginf(input: Tensor) -> Tensor:
    """Where ``input`` is -inf."""
    kinds("isneginf", "biufV", as_input(input, "isneginf"))
    return el.eq(input, -_math.inf)


def isreal(input: Tensor) -> Tensor:
    """Where ``input`` has no imaginary part."""
    if as_input(input, "isreal").dtype.is_complex:
        return el.eq(aliases.imag(input), 0)
    return el.logical_or(el.eq(input, input), True)


def angle(input: Tensor) -> Tensor:
    """The angle of complex numbers with the positive axis; pi for negative numbers, else 0."""
    if as_input(input, "angle").dtype.is_complex:
        return el.atan2(aliases.imag(input), aliases.real(input))
    x = _floating(input)
    return el.where(el.isnan(x), x, el.where(el.lt(x, 0), _math.pi, x * 0))


def fmax(input: Tensor, other: Tensor) -> Tensor:
    """The larger one, or the one that is a number where the other is nan."""
    a, b = _real_pair("fmax", input, other)
    return el.where(el.logical_or(el.ge(a, b), el.isnan(b)), a, b)


def fmin(input: Tensor, other: Tensor) -> Tensor:
    """The smaller one, or the one that is a number where the other is nan."""
    a, b = _real_pair("fmin", input, other)
    return el.where(el.logical_or(el.le(a, b), el.isnan(b)), a, b)


def _real_pair(where: str, input: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    kinds(where, "biufV", as_input(input, where), as_input(other, where, "other"))
    return input, other


@in_float32
def logaddexp2(input: Tensor, other: Tensor) -> Tensor:
    """log2(2**input + 2**other)"""
    kind = result_type(as_input(input, "logaddexp2"), as_input(other, "logaddexp2", "other"))
    if not kind.is_floating_point:
        raise refuse("logaddexp2", kind.np)
    two = _math.log(2.0)
    both = (el.cast(t, dtype=kind.np) * two for t in (input, other))
    return el.logaddexp(*both) / two


def digamma(input: Tensor) -> Tensor:
    """The logarithmic derivative of the gamma function."""
    return sp.polygamma(_floating(input), n=0)


def polygamma(n: int, input: Tensor) -> Tensor:
    """The n-th derivative of ``digamma``."""
    if n < 0:
        raise ConfigError(f"polygamma(n, x) does not support negative n. {n} given")
    return sp.polygamma(_floating(input), n=int(n))


def mvlgamma(input: Tensor, p: int) -> Tensor:
    """The logarithm of the multivariate gamma function of dimension ``p``."""
    if p < 1:
        raise ConfigError(f"mvlgamma: p={p} given; p has to be greater than or equal to 1")
    x = _floating(input)
    out = lgamma(x)
    for j in range(1, p):
        out = out + lgamma(x - j / 2)
    return out + p * (p - 1) / 4 * _math.log(_math.pi)


@in_float32
def ndtr(input: Tensor) -> Tensor:
    """The area under the normal distribution up to ``input``: erfc(-x / sqrt(2)) / 2. Floating."""
    return erfc(_floating(as_input(input, "special.ndtr")) * -_math.sqrt(0.5)) * 0.5


def _two(prim: Any) -> Any:
    """``prim`` of two tensors, or of one and a number."""
    name = prim.name

    def run(input: Operand, other: Operand) -> Tensor:
        if not isinstance(input, Tensor) and not isinstance(other, Tensor):
            raise TypeError(f"{name}: two numbers given; needed a tensor for input or for other")
        return prim(input, other)

    run.__name__ = run.__qualname__ = name
    return run


xlog1py, zeta = _two(sp.xlog1py), _two(sp.zeta)


def _modified(prim: Any) -> Any:
    """``prim`` without a derivative and in two types, as PyTorch has it under this name."""
    name = f"modified_bessel_{prim.name}"

    def run(input: Tensor) -> Tensor:
        x = _floating(as_input(input, name))
        if x.meta()[1] not in (np.dtype(np.float32), np.dtype(np.float64)):
            raise refuse(name, x.meta()[1])
        return prim(x.detach())

    run.__name__ = run.__qualname__ = name
    return run


MODIFIED_FIRST_KIND = _modified(sp.i0), _modified(sp.i1)


@in_float32
def sinc(input: Tensor) -> Tensor:
    """sin(pi x) / (pi x); 1 at 0."""
    x = _floating(input) * _math.pi
    zero = x == 0
    safe = el.where(zero, 1.0, x)
    return el.where(zero, 1.0 - x * x / 6, el.sin(safe) / safe)


def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)), with x limited to [eps, 1 - eps] where ``eps`` is given."""
    kinds("logit", "biufV", as_input(input, "logit"))
    x = _floating(input)
    if eps is not None:
        x = math.clamp(x, eps, 1 - eps)
    one = wrap(np.ones((), x.meta()[1]))
    x = x * el.where((x < 0) | (x > 1), _math.nan, one)  # (the gradient is nan there too)
    return math.log(x) - math.log1p(-x)


def deg2rad(input: Tensor) -> Tensor:
    """Degrees as radians."""
    kinds("deg2rad", "biufV", as_input(input, "deg2rad"))
    return _floating(input) * (_math.pi / 180)


def rad2deg(input: Tensor) -> Tensor:
    """Radians as degrees."""
    kinds("rad2deg", "biufV", as_input(input, "rad2deg"))
    return _floating(input) * (180 / _math.pi)


def frac(input: Tensor) -> Tensor:
    """What is behind the point: x - trunc(x)."""
    kinds("frac", "fV", as_input(input, "frac"))
    return input - math.trunc(input)


def float_power(input: Operand, exponent: Operand) -> Tensor:
    """``pow`` in float64 (complex128)."""

    def wide(x: object) -> Any:
        if not isinstance(x, Tensor):
            return x
        return el.cast(x, dtype=np.dtype(np.complex128 if x.dtype.is_complex else np.float64))

    return el.pow_(wide(input), wide(exponent))


def ldexp(input: Tensor, other: Tensor) -> Tensor:
    """input * 2**other"""
    kind, power = input.dtype, as_input(other, "ldexp", "other").dtype
    if kind.is_floating_point:
        kinds("ldexp", "iufVc", other)
    if power.np.kind in "biu" and (kind.is_floating_point or kind.is_complex):
        part = kind.np if kind.is_floating_point else np.dtype(f"f{kind.itemsize // 2}")
        other = el.cast(other, dtype=part)
    return input * el.pow_(2.0, _floating(other))


def logical_of(where: str, input: Tensor, other: Tensor) -> None:
    """Raise unless both have one type."""
    if input.meta()[1] != other.meta()[1]:
        raise DTypeError(f"{where}: {input.dtype!r} and {other.dtype!r} given; they must be equal")


# --- products added to something ---------------------------------------------------------------
def _older(fn: Callable) -> Callable:
    """``fn`` also in its older order: (beta, input, alpha, ...), as a method (input, beta, alpha,
    ...), with ``alpha`` left away where it is 1."""

    @functools.wraps(fn)
    def run(*args: Any, **params: Any) -> Any:
        if len(args) < 4 or all(isinstance(a, Tensor) for a in args):
            return fn(*args, **params)
        name = fn.__name__
        warn(
            f"This overload of {name} is deprecated (of its method, This overload of {name}_ is "
            f"deprecated); use {name}(..., beta=..., alpha=...)"
        )
        numbers = [a for a in args if not isinstance(a, Tensor)]
        tensors = [a for a in args if isinstance(a, Tensor)]
        return fn(*tensors, **dict(zip(("beta", "alpha"), numbers, strict=False)), **params)

    run.number_first = True  # type: ignore[attr-defined]
    return run


def _factors(where: str, kind: dtypes.dtype, **factors: Any) -> None:
    """Refuse numbers that a result of ``kind`` cannot be multiplied by."""
    whole = not (kind.is_floating_point or kind.is_complex)
    for name, value in factors.items():
        if isinstance(value, bool) and kind is not dtypes.bool:
            raise DTypeError(f"{where}: Boolean {name} only supported for Boolean results.")
        if isinstance(value, float) and whole:
            raise DTypeError(
                f"{where}: For integral input tensors, argument {name} must not be a floating "
                f"point number. ({value} given)"
            )


def _plus(input: Tensor, product: Tensor, beta: float, alpha: float) -> Tensor:
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        shape = broadcast("the product", input.shape, product.shape)
        return product if tuple(product.shape) == shape else views.expand(product, shape=shape)
    return (input if beta == 1 else input * beta) + product


@_older
@computes_in("lower")
def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * input + alpha * (mat @ vec)"""
    same_type("addmv", input, mat, vec)
    return _plus(input, linalg.mv(mat, vec), beta, alpha)


@_older
@computes_in("lower")
def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * input + alpha * outer(vec1, vec2)"""
    _factors("addr", result_type(result_type(vec1, vec2), input), beta=beta, alpha=alpha)
    return _plus(input, linalg.outer(vec1, vec2), beta, alpha)


@_older
@computes_in("lower")
def baddbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """beta * input + alpha * (batch1 @ batch2), per matrix of the batch"""
    same_type("baddbmm: Input dtypes must be the same", input, batch1, batch2)
    return _plus(input, linalg.bmm(batch1, batch2), beta, alpha)


@_older
@computes_in("lower")
def addbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """beta * input + alpha * (the sum of batch1 @ batch2 over the batch)"""
    same_type("addbmm", input, batch1, batch2)
    return _plus(input, linalg.bmm(batch1, batch2).sum(0), beta, alpha)


# --- places ------------------------------------------------------------------------------------
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of ``input`` with ``source`` at the places ``index`` of its flattened elements."""
    logical_of("put", input, source)
    if index.shape.numel() != source.shape.numel():
        raise ShapeError(
            f"put: index of shape {list(index.shape)} and source of shape {list(source.shape)} "
            "given; they must have the same number of elements"
        )
    places = bounded("put", index, 0, input.shape.numel(), negative=True)
    values = views.reshape(source, shape=tuple(index.shape))
    return put_prims.put(input, places, values, accumulate=bool(accumulate))


def index_reduce(
    input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *,
    include_self: bool = True,
) -> Tensor:  # fmt: skip
    """A copy of ``input`` with slice i of ``source`` reduced into slice index[i]: prod, mean, amax
    or amin."""
    d = one_dim(dim, input.ndim, "index_reduce")
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise ConfigError(f"index_reduce: reduce={reduce!r} given; needed prod, mean, amax or amin")
    logical_of("index_reduce", input, source)
    line = tuple(-1 if i == d else 1 for i in range(input.ndim))
    places = views.expand(views.reshape(index, shape=line), shape=tuple(source.shape))
    return gathering.scatter_reduce(input, d, places, source, reduce, include_self=include_self)


def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """The slices along ``dim``, scaled so that none has a larger p-norm than ``maxnorm``."""
    d = one_dim(dim, input.ndim, "renorm")
    if input.ndim < 2 or p <= 0 or maxnorm < 0:
        raise ConfigError(
            f"renorm: p={p}, maxnorm={maxnorm} for shape {list(input.shape)} given; needed p > 0, "
            "maxnorm >= 0 and at least 2 dimensions"
        )
    others = tuple(i for i in range(input.ndim) if i != d)
    norms = linalg.norm(input, p, others, keepdim=True)
    return input * el.where(norms > maxnorm, maxnorm / (norms + 1e-7), 1.0)


def filled_diagonal(input: Tensor, fill_value: float, wrap_around: bool = False) -> Tensor:
    """A copy of ``input`` with ``fill_value`` on its main diagonal. ``wrap_around``: once more
    below, in matrices that are taller than wide."""
    shape = tuple(input.shape)
    if len(shape) < 2 or (len(shape) > 2 and len(set(shape)) > 1):
        raise ShapeError(
            f"fill_diagonal_: shape {list(shape)} given; needed two dimensions, or more of one size"
        )
    steps = [_math.prod(shape[i + 1 :]) for i in range(len(shape))]
    count = min(shape)
    end, step, kind = count * sum(steps), sum(steps), input.meta()[1]
    if wrap_around and len(shape) == 2 and shape[0] > shape[1]:
        end, step = _math.prod(shape), shape[1] + 1
    places = made_beside(input, lambda xp: xp.arange(0, end, step))
    value = made_beside(input, lambda xp: xp.full(tuple(places.shape), fill_value, kind))
    return put_prims.put(input, places, value, accumulate=False)


__all__ = [
    "addbmm",
    "addmv",
    "addr",
    "angle",
    "arccosh",
    "arcsinh",
    "arctan2",
    "arctanh",
    "baddbmm",
    "bitwise_left_shift",
    "bitwise_right_shift",
    "copysign",
    "deg2rad",
    "digamma",
    "erfc",
    "erfinv",
    "fix",
    "fmod",
    "float_power",
    "fmax",
    "fmin",
    "frac",
    "gcd",
    "heaviside",
    "hypot",
    "i0",
    "igamma",
    "igammac",
    "index_reduce",
    "isneginf",
    "isposinf",
    "isreal",
    "lcm",
    "ldexp",
    "lgamma",
    "logaddexp2",
    "logit",
    "mvlgamma",
    "nextafter",
    "polygamma",
    "put",
    "rad2deg",
    "renorm",
    "signbit",
    "sinc",
]
