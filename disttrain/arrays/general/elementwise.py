"""Functions of single elements as XLA's vocabulary has them: operands of one type; of shapes,
dimensions of 1 and scalars are broadcast."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import numpy as np

from ... import special
from ...core.bodies import held
from ...core.tensor import Tensor
from ...core.types import dtypes
from ...errors import OperandError, ShapeError
from ...ops import api as ops
from .. import elements
from . import words
from .checks import Index, accepts, cast, common_shape, kind_of, same_types


class RoundingMethod(enum.IntEnum):
    """Where halves go."""

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


class Precision(enum.Enum):
    """How exact products are: here always as their type is."""

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2


def _whole_div(a: Tensor, b: Tensor) -> Tensor:
    if kind_of(a).kind not in "iu":
        return a / b
    zero = b == 0
    out = ops.div(a, ops.where(zero, ops.ones_like(b), b), rounding_mode="trunc")
    return ops.where(zero, ops.bitwise_not(ops.zeros_like(a)), out)


def _shift_right_logical(a: Tensor, b: Tensor) -> Tensor:
    kind = kind_of(a)
    word = np.dtype(kind.name.replace("int", "uint")) if kind.kind == "i" else kind
    return words.bitcast(elements.right_shift(words.bitcast(a, word), words.bitcast(b, word)), kind)


def _remainder(a: Tensor, b: Tensor) -> Tensor:
    """With the sign of ``a``; of whole numbers by 0, ``a``."""
    if kind_of(a).kind not in "iu":
        return ops.fmod(a, b)
    zero = b == 0
    return ops.where(zero, a, ops.fmod(a, ops.where(zero, ops.ones_like(b), b)))


_OWN: dict[str, Callable] = {
    "logistic": ops.sigmoid, "div": _whole_div, "shift_right_logical": _shift_right_logical,
    "clz": words.clz, "population_count": words.population_count,
    "shift_right_arithmetic": words.shift_right, "rem": _remainder,
    "max": words.maximum, "min": words.minimum,
}  # fmt: skip
# name[=source] takes
_UNARY = """
neg ifc sign=elements.sign ifc floor f ceil f exp fc exp2 fc log fc expm1 fc log1p fc tanh fc
logistic=own fc sin fc cos fc tan fc asin fc acos fc atan fc sinh fc cosh fc asinh fc acosh fc
atanh fc abs sfc sqrt fc rsqrt fc cbrt=elements.cbrt f bitwise_not bi population_count=own i
clz=own i lgamma f digamma f erf f erfc f erf_inv=erfinv f
bessel_i0e=special.i0e f bessel_i1e=special.i1e f
square ifc reciprocal fc
"""
_BINARY = """
nextafter f atan2 f bitwise_and bi bitwise_or bi bitwise_xor bi add ifc sub ifc
mul ifc div=own ifc rem=own if max=own bifc min=own bifc
shift_left=elements.left_shift i shift_right_arithmetic=own i
shift_right_logical=own i igamma f igammac f zeta=special.zeta f
"""
_COMPARISONS = "eq bifc ne bifc lt bif le bif gt bif ge bif"
NAMES: dict[str, Any] = {}


def _unary(name: str, fn: Callable, takes: str) -> Callable:
    def run(x: Tensor, accuracy: Any = None) -> Tensor:
        accepts(name, kind_of(x), takes)
        return fn(x)

    return _named(run, name)


def _binary(name: str, fn: Callable, takes: str) -> Callable:
    def run(x: Tensor, y: Tensor) -> Tensor:
        for i, v in enumerate((x, y)):
            accepts(name, kind_of(v), takes, i)
        same_types(name, (x, y))
        common_shape(name, (x, y))
        return fn(x, y)

    return _named(run, name)


def _named(run: Callable, name: str) -> Callable:
    run.__name__ = run.__qualname__ = name
    run.__module__, run.__doc__ = __name__, f"XLA's ``{name}`` of each element."
    return run


def _rows(text: str) -> list[tuple[str, Callable, str]]:
    found = text.split()
    rows = []
    for spec, takes in zip(found[::2], found[1::2], strict=True):
        name, _, source = spec.partition("=")
        module, _, rest = (source or name).rpartition(".")
        where = {"elements": elements, "special": special, "": ops}[module]
        fn = _OWN[name] if source == "own" else getattr(where, rest)
        rows.append((name, fn, takes))
    return rows


NAMES |= {name: _unary(name, fn, takes) for name, fn, takes in _rows(_UNARY)}
NAMES |= {name: _binary(name, fn, takes) for name, fn, takes in _rows(_BINARY)}
NAMES |= {name: _binary(name, fn, takes) for name, fn, takes in _rows(_COMPARISONS)}


def is_finite(x: Tensor) -> Tensor:
    """Whether elements are finite."""
    a = x
    accepts("is_finite", kind_of(a), "f")
    return ops.isfinite(a)


def real(x: Tensor) -> Tensor:
    """Real parts."""
    return ops.real(_complex_of("real", x)).clone()


def imag(x: Tensor) -> Tensor:
    """Imaginary parts."""
    return ops.imag(_complex_of("imag", x)).clone()


def _complex_of(name: str, x: Tensor) -> Tensor:
    a = x
    accepts(name, kind_of(a), "c")
    return a


def conj(x: Tensor) -> Tensor:
    """Conjugates; complex, of real numbers too."""
    a = x
    accepts("conj", kind_of(a), "fc")
    wide = np.dtype(
        "complex128" if kind_of(a).itemsize == 8 and kind_of(a).kind == "f" else "complex64"
    )
    value = a if kind_of(a).kind == "c" else a.to(dtypes.of(wide))
    return ops.conj(value)


def complex(x: Tensor, y: Tensor) -> Tensor:  # noqa: A001
    """``x + iy``."""
    a, b = x, y
    same_types("complex", (a, b))
    common_shape("complex", (a, b))
    u, v = ops.broadcast_tensors(a, b)
    return ops.complex(u, v)


def round(  # noqa: A001
    x: Tensor, rounding_method: RoundingMethod = RoundingMethod.AWAY_FROM_ZERO
) -> Tensor:
    """The nearest whole numbers."""
    a = x
    accepts("round", kind_of(a), "f")
    even = RoundingMethod(rounding_method) is RoundingMethod.TO_NEAREST_EVEN
    return ops.round(a) if even else words.round_away(a)


def pow(x: Tensor, y: Tensor) -> Tensor:  # noqa: A001
    """``x ** y``; ``y`` may be an integer for any ``x``."""
    a, b = x, y
    accepts("pow", kind_of(a), "fc", 0)
    accepts("pow", kind_of(b), "ifc", 1)
    common_shape("pow", (a, b))
    if kind_of(b).kind in "iu":
        whole = y if isinstance(y, int) else None
        if whole is not None:
            return integer_pow(a, whole)
        return elements.power(a, b.to(a.dtype))
    same_types("pow", (a, b))
    return elements.power(a, b)


def integer_pow(x: Tensor, y: int) -> Tensor:
    """``x`` to a whole power."""
    a = x
    accepts("integer_pow", kind_of(a), "ifc")
    if y < 0 and kind_of(a).kind in "iu":
        raise OperandError(
            f"Integers cannot be raised to negative powers, got integer_pow({x}, {y})"
        )
    return a**y


def polygamma(m: Tensor, x: Tensor) -> Tensor:
    """The polygamma function of order ``m``."""
    a, b = m, x
    same_types("polygamma", (a, b))
    return words.polygamma(a, b)


def clamp(min: Tensor, x: Tensor, max: Tensor) -> Tensor:  # noqa: A002
    """``x`` between ``min`` and ``max``."""
    arrays = [v for i, v in enumerate((min, x, max))]
    same_types("clamp", arrays)
    low, a, high = arrays
    for name, v in (("min", low), ("max", high)):
        if tuple(v.shape) and tuple(v.shape) != tuple(a.shape):
            raise OperandError(
                f"clamp requires {name}.shape == operand.shape or {name}.shape == (), got "
                f"{name}.shape={tuple(v.shape)}, operand.shape={tuple(a.shape)}."
            )
    out = ops.minimum(ops.maximum(low, a), high)
    return out


def select(pred: Index, on_true: Tensor, on_false: Tensor) -> Tensor:
    """``on_true`` where ``pred`` holds."""
    return select_n(pred, on_false, on_true)


def select_n(which: Index, *cases: Tensor) -> Tensor:
    """The case of each number (or flag) of ``which``."""
    if not cases:
        raise ShapeError("select_n() must have at least one case")
    place = which
    arrays = [c for i, c in enumerate(cases)]
    if kind_of(place).kind not in "bi":
        raise OperandError(
            f"select `which` must be boolean or integer type, got {kind_of(place).name}."
        )
    if kind_of(place).kind == "b" and len(cases) > 2:
        raise OperandError(
            f"select with boolean `which` cannot have > 2 cases, got {len(cases)} cases."
        )
    if any(tuple(a.shape) != tuple(arrays[0].shape) for a in arrays):
        raise OperandError(
            "select cases must have the same shapes, got "
            f"[{', '.join(str(tuple(a.shape)) for a in arrays)}]."
        )
    if tuple(place.shape) and tuple(place.shape) != tuple(arrays[0].shape):
        raise OperandError(
            "select `which` must be scalar or have the same shape as cases, got `which` shape "
            f"{tuple(place.shape)} but case shape {tuple(arrays[0].shape)}."
        )
    same_types("select", arrays)
    out = arrays[0]
    for i, a in enumerate(arrays[1:], 1):
        out = ops.where(place if kind_of(place).kind == "b" else place >= i, a, out)
    return out


def convert_element_type(operand: Tensor, new_dtype: Any) -> Tensor:
    """``operand`` in another type."""
    a = operand
    kind = np.dtype(new_dtype)
    return cast(a, kind)


def bitcast_convert_type(operand: Tensor, new_dtype: Any) -> Tensor:
    """The bits of ``operand`` as another type."""
    a, kind = operand, np.dtype(new_dtype)
    own, new = kind_of(a).itemsize, kind.itemsize
    if new > own and (not tuple(a.shape) or tuple(a.shape)[-1] * own != new):
        raise ShapeError(
            f"Attempting to convert array of shape {tuple(a.shape)} from {kind_of(a).name} of size "
            f"{8 * own} bits to {kind.name} of size {8 * new}, bits but "
            f"{a.shape[-1] if a.ndim else 1} * {8 * own} != {8 * new}"
        )
    return words.bitcast(a, kind)


def reduce_precision(operand: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    """``operand`` with so many bits."""
    a = operand
    accepts("reduce_precision", kind_of(a), "f")
    return words.reduce_precision(a, exponent_bits, mantissa_bits)


def stop_gradient(x: Tensor) -> Tensor:
    """``x``, as a constant to derivatives."""
    return held(x) if kind_of(x).kind in "fcV" else x


def optimization_barrier(x: Tensor) -> Tensor:
    """``x``: what is computed before is not moved behind it (nothing is moved here)."""
    return x


for _fn in (
    is_finite, real, imag, conj, complex, round, pow, integer_pow, polygamma, clamp, select,
    select_n, convert_element_type, bitcast_convert_type, reduce_precision, stop_gradient,
    optimization_barrier,
):  # fmt: skip
    NAMES[_fn.__name__] = _fn
NAMES |= {"RoundingMethod": RoundingMethod, "Precision": Precision}
