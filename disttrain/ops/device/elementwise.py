"""Elementwise primitives on devices.

Floating types run as one generated kernel each, from the primitive's expression (``expr``, or one
of ``_EXPRESSIONS`` here), with any strides and broadcasting. Integers, booleans and complex numbers
run by the array module's functions, which the primitive's own forward calls. What has no expression
(inverse trigonometric functions ...) runs by the array module too, half types in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from disttrain.backends.device.raw import RawArray

from ...backends.device.platform import Platform
from ...backends.lang import expr as ex
from ...backends.lang.kernel import Array, Kernel, Scalar, elementwise, wide_type
from ...backends.null import NullArray
from ...core.gate import Primitive
from ...core.types.wide import is_half
from ...errors import NumberError
from ..declare import REGISTRY
from ..primitives import elementwise as el
from ..primitives import softmax, special
from .table import FLOATS, NAME_OF, Expression, Forward, cast, made_like, number, on_device, run
from .table import through_float32 as wide

_KEPT = (el, softmax, special)  # whose primitives must be declared by now
_OTHER: Any = object()
_PLAIN_POWERS = (0.5, -0.5, 1, 2, 3, -1)


class Generated:
    """A primitive as one kernel per types of its arguments; ``other`` for types that the kernel
    language does not compute as PyTorch does."""

    def __init__(self, prim: Primitive, other: Forward, expr: Expression | None = None) -> None:
        expr = expr or prim.expr
        assert expr is not None and prim.shape is not None, f"{prim.name} has no expression"
        self.name, self.shape, self.expr, self.other = prim.name, prim.shape, expr, other
        self.known: dict[tuple, Any] = {}

    def __call__(self, platform: Platform, *args: Any) -> Any:
        array = platform.array_type
        key = tuple([a.dtype if a.__class__ is array else a.__class__ for a in args])
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self._make(args, array)
        if found is _OTHER:
            return self.other(platform, *args)
        kernel, dtype = found
        first = None
        shape: tuple = ()
        values: list = []
        for a in args:
            if isinstance(a, array):
                if first is None or (a.shape != shape and len(a.shape) >= len(shape)):
                    shape = a.shape if first is None else np.broadcast_shapes(shape, a.shape)
                    first = a
                elif a.shape != shape:
                    shape = np.broadcast_shapes(shape, a.shape)
                values.append(a)
            else:
                values.append(number(a))
        out = made_like(platform, first, shape, dtype)
        run(platform, kernel, tuple(values), out)
        return out

    def _make(self, args: tuple, array: type[RawArray]) -> Any:
        """(kernel, type of the result), or that another way is to be taken."""
        found = self.typed(args, [isinstance(a, array) for a in args])
        if found is None:
            return _OTHER
        params, dtype = found
        return self._kernel(params, str(NAME_OF[dtype])), dtype

    def typed(
        self, args: Sequence[Any], there: Sequence[bool]
    ) -> tuple[tuple[Array | Scalar, ...], np.dtype] | None:
        """The kernel's parameters for ``args`` (``there``: whether each is an array; of arrays only
        types are asked), and the type of the result. None where there is no kernel for them."""
        metas = [NullArray((), a.dtype) if hasattr(a, "dtype") else a for a in args]
        dtype = np.dtype(self.shape(*metas)[1])
        names = [NAME_OF[a.dtype] for a, is_array in zip(args, there, strict=True) if is_array]
        floats = [n for n in (*names, NAME_OF[dtype]) if n in FLOATS]
        if None in names or NAME_OF[dtype] is None or not floats or not names:
            return None
        scalars = wide_type("float64" if "float64" in floats else floats[0])
        params = tuple(
            Array(f"x{i}", str(NAME_OF[a.dtype])) if is_array else Scalar(f"x{i}", scalars)
            for i, (a, is_array) in enumerate(zip(args, there, strict=True))
        )
        return params, dtype

    def _kernel(self, params: tuple, out: str) -> Kernel:
        return elementwise(self.name, self.expr, params, out)


def _own(prim: Primitive) -> Forward:
    """The primitive's forward, half types in float32."""
    return wide(lambda platform, *args, **params: prim.forward(*args, **params))


def _sign(a: ex.Expr) -> ex.Expr:
    return ex.where(a > 0, 1.0, ex.where(a < 0, -1.0, 0.0))


# Of primitives whose forward on the host is no kernel. The meaning is that of the forward.
_EXPRESSIONS: dict[str, Expression] = {
    "eq": ex.eq,
    "ne": ex.ne,
    "isnan": ex.isnan,
    "isinf": lambda a: ex.eq(ex.abs(a), math.inf),
    "isfinite": lambda a: ex.abs(a) < math.inf,
    "sign": _sign,
    "sgn": _sign,
    "trunc": lambda a: ex.where(a < 0, ex.ceil(a), ex.floor(a)),
    "expm1": ex.expm1,
    "log1p": ex.log1p,
    "clip_below": ex.max,
    "clip_above": ex.min,
    "xlogy": lambda a, b: ex.where(ex.eq(a, 0) & ~ex.isnan(b), 0.0, a * ex.log(b)),
    "heaviside": lambda a, b: ex.where(ex.eq(a, 0), b, ex.where(a > 0, 1.0, 0.0)),
}


def _raised(p: float) -> Expression:
    return lambda a: ex.pow(a, p)


def _generate() -> None:
    """Give every elementwise primitive with an expression its kernels."""
    for name, prim in REGISTRY.items():
        expr = prim.expr or _EXPRESSIONS.get(name)
        if prim.elementwise and expr is not None and name not in ("pow", "where"):
            prim.on_device = Generated(prim, _own(prim), expr)


_generate()
chosen = Generated(el.where, _own(el.where))
power = Generated(el.pow_, lambda platform, *args: _other_power(platform, *args))
_powers = {p: Generated(el.square, lambda platform, a: None, _raised(p)) for p in _PLAIN_POWERS}
for _name in (
    "conj exp2 log2 log10 tan asin acos atan sinh cosh asinh acosh atanh bitwise_not atan2 "
    "logaddexp copysign hypot signbit mantissa exponent"
).split():
    on_device(_name)(_own(REGISTRY[_name]))


def _of_truth(prim: Primitive) -> Forward:
    """A function of what is not 0. (CuPy's have no complex numbers.)"""

    def forward(platform: Platform, *args: Any) -> Any:
        return prim.forward(*[a != 0 if np.iscomplexobj(a) else a for a in args])

    return wide(forward)


for _name in ("logical_not", "logical_and", "logical_or", "logical_xor"):
    on_device(_name)(_of_truth(REGISTRY[_name]))


@on_device("where")
def _where_on_device(
    platform: Platform,
    condition: RawArray,
    a: RawArray | float | np.generic,
    b: RawArray | float | np.generic,
) -> Any:
    if not isinstance(condition, platform.array_type):  # a condition of no axes, of the host
        one = a if bool(condition) else b
        shape = np.broadcast_shapes(np.shape(a), np.shape(b))
        return platform.xp.broadcast_to(platform.xp.asarray(one), shape).copy()
    return chosen(platform, condition, a, b)


@on_device("pow")
def _power(platform: Platform, a: Any, b: Any) -> Any:
    """Small constant powers as products and roots, as the host has them."""
    if not isinstance(b, platform.array_type) and not isinstance(b, complex):
        special = plain_power(a.dtype, b)
        if special is not None:
            return special(platform, a)
    return power(platform, a, b)


def plain_power(dtype: np.dtype, b: float) -> Generated | None:
    """A power of arrays of ``dtype`` that is a product or a root."""
    return _powers.get(b) if NAME_OF[dtype] in FLOATS else None


def _other_power(platform: Platform, a: Any, b: RawArray | int) -> Any:
    """Integers (negative powers truncate, as in PyTorch; to look at values would be to wait for the
    device) and complex numbers."""
    xp = platform.xp
    if np.result_type(_kind(a), _kind(b)).kind not in "iu":
        return el.pow_.forward(a, b)
    if not isinstance(b, platform.array_type):
        if b < 0:
            raise NumberError(
                f"pow: integers to the negative integer power {b} given; convert the tensor with "
                ".float() first"
            )
        return xp.power(a, b)
    sign = xp.where(b % 2 == 0, 1, a)
    if isinstance(a, platform.array_type):
        small = xp.where(abs(a) == 1, sign, 0)
    else:
        small = sign if abs(a) == 1 else 0
    kind = np.result_type(_kind(a), _kind(b))
    return xp.where(b >= 0, xp.power(a, xp.maximum(b, 0)), small).astype(kind)


def _kind(a: RawArray | float) -> Any:
    return getattr(a, "dtype", a)


def _divided(prim: Primitive, whole: Callable, floats: Callable) -> None:
    """A division: ``whole`` of integers, ``floats`` of the rest. Integers divided by zero give
    anything, as in PyTorch on devices, where to look would be to wait; a host's number is looked
    at."""

    def forward(platform: Platform, a: Any, b: Any) -> Any:
        if np.result_type(_kind(a), _kind(b)).kind not in "iu":
            return floats(a, b)
        if not isinstance(b, platform.array_type):
            prim.forward(np.ones((), np.int64), b)  # which says what is wrong with zero
        return whole(a, b)

    prim.on_device = wide(forward)


def _truncated_rest(a: RawArray, b: RawArray) -> Any:
    """What truncated division of integers leaves. (CuPy's fmod goes through float64.)"""
    return a - el._truncated(a, b) * b


def _floored(a: Any, b: Any) -> Any:
    """floor(a / b) from the exact rest, as Python's and PyTorch's. (CuPy's rounds the quotient
    first: 1.0 // 0.1 would be 10.)"""
    rest = np.fmod(a, b)
    quotient = (a - rest) / b
    turned = (rest != 0) & ((rest < 0) != np.less(b, 0))
    quotient = np.where(turned, quotient - 1, quotient)
    low = np.floor(quotient)
    low = np.where(quotient - low > 0.5, low + 1, low)
    plain = np.true_divide(a, b)
    low = np.where(quotient == 0, np.copysign(low * 0, plain), low)
    if np.isscalar(b):
        return low if b else plain
    return np.where(np.equal(b, 0), plain, low)


_divided(el.remainder, np.mod, el._remainder)
_divided(el.fmod, _truncated_rest, np.fmod)
_divided(el.floor_divide, np.floor_divide, _floored)
_divided(el.truncate_divide, el._truncated, el._truncated)
_truncated_at_once = el.truncate_divide.on_device


def _truncate_divide(platform: Platform, a: RawArray, b: RawArray) -> Any:
    """Quotients of half types are rounded before they are truncated, as on the host."""
    if any(isinstance(x, platform.array_type) and is_half(x.dtype) for x in (a, b)):
        return el.trunc.on_device(platform, el.div.on_device(platform, a, b))
    return _truncated_at_once(platform, a, b)


el.truncate_divide.on_device = _truncate_divide


@on_device("round")
@wide
def _round(platform: Platform, a: RawArray) -> Any:
    return platform.xp.rint(a) if a.dtype.kind == "f" else a.copy()


@on_device("clip")
def _clip(
    platform: Platform, a: RawArray, low: float | None = None, high: float | None = None
) -> Any:
    if low is not None:
        a = el.clip_below.on_device(platform, a, low)
    return a if high is None else el.clip_above.on_device(platform, a, high)


@on_device("cast")
def _cast(platform: Platform, a: RawArray, dtype: np.dtype) -> Any:
    return cast(platform, a, dtype)


@on_device("clone")
def _clone(platform: Platform, a: RawArray) -> Any:
    return a.copy(order="C")
