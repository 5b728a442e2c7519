"""``lax``'s functions of single elements, as tables: a name, what computes it, the element types
that it takes. Operands have one type; of shapes, dimensions of 1 and scalars are broadcast."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .... import special
from ....arrays import elements, words
from ....core.tensor import Tensor
from ....core.types import dtypes
from ....func.staging import held
from ....ops import api as ops
from .. import tree
from ..array import Array, wrap
from ..numpy.lifting import cast
from ..transforms import as_array
from ..types import asked as canonical

_CLASSES = {"f": "floating", "c": "complexfloating", "i": "integer", "s": "signedinteger", "b": "bool"}
_LETTERS = {"f": "fV", "c": "c", "i": "iu", "s": "i", "b": "b"}


class RoundingMethod(enum.IntEnum):
    """Where halves go."""

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


class Precision(enum.Enum):
    """How exact products are: here always as their type is."""

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2


def _logistic(x: Tensor) -> Tensor:
    return ops.sigmoid(x)


def _whole_div(a: Tensor, b: Tensor) -> Tensor:
    if a.meta()[1].kind not in "iu":
        return a / b
    zero = b == 0
    out = ops.div(a, ops.where(zero, ops.ones_like(b), b), rounding_mode="trunc")
    return ops.where(zero, ops.bitwise_not(ops.zeros_like(a)), out)


def _shift_right_logical(a: Tensor, b: Tensor) -> Tensor:
    kind = a.meta()[1]
    word = np.dtype(kind.name.replace("int", "uint")) if kind.kind == "i" else kind
    return words.bitcast(elements.right_shift(words.bitcast(a, word), words.bitcast(b, word)), kind)


_OWN: dict[str, Callable] = {
    "logistic": _logistic, "div": _whole_div, "shift_right_logical": _shift_right_logical,
    "clz": words.clz, "population_count": words.population_count,
    "shift_right_arithmetic": words.shift_right, "max": words.maximum, "min": words.minimum,
}  # fmt: skip
# name[=source] takes
_UNARY = """
neg ifc sign=elements.sign ifc floor f ceil f exp fc exp2 fc log fc expm1 fc log1p fc tanh fc
logistic=own fc sin fc cos fc tan fc asin fc acos fc atan fc sinh fc cosh fc asinh fc acosh fc
atanh fc abs sfc sqrt fc rsqrt fc cbrt=elements.cbrt f bitwise_not bi population_count=own i clz=own i
lgamma f digamma f erf f erfc f erf_inv=erfinv f bessel_i0e=special.i0e f bessel_i1e=special.i1e f
square ifc reciprocal fc
"""
_BINARY = """
nextafter f atan2 f bitwise_and bi bitwise_or bi bitwise_xor bi add ifc sub ifc
mul ifc div=own ifc rem=elements.fmod if max=own bifc min=own bifc
shift_left=elements.left_shift i shift_right_arithmetic=own i
shift_right_logical=own i igamma f igammac f zeta=special.zeta f
"""
_COMPARISONS = "eq bifc ne bifc lt bif le bif gt bif ge bif"
_TIPS = {
    "sub": "subtract", "mul": "multiply", "div": "divide", "eq": "equal", "ne": "not_equal",
    "ge": "greater_equal", "gt": "greater", "le": "less_equal", "lt": "less", "rem": "remainder",
    "max": "maximum", "min": "minimum", "pow": "power", "select": "where", "add": "add",
    "atan2": "arctan2", "nextafter": "nextafter", "bitwise_and": "bitwise_and",
    "bitwise_or": "bitwise_or", "bitwise_xor": "bitwise_xor", "shift_left": "left_shift",
    "igamma": "", "igammac": "",
}  # fmt: skip
NAMES: dict[str, Any] = {}


def value_of(name: str, x: Any, place: int = 0) -> Array:
    """An operand as an Array."""
    try:
        return as_array(x)
    except TypeError:
        raise TypeError(
            f"Error interpreting argument to {name} as a JAX value. The problematic value is of "
            f"type {type(x)} and was passed to {name} at position {place}."
        ) from None


def accepts(name: str, kind: np.dtype, takes: str, place: int | None = None) -> None:
    """Raise ``TypeError`` unless the type is of one of the classes that ``takes`` names."""
    if any(kind.kind in _LETTERS[t] for t in takes):
        return
    at = "" if place is None else f" at position {place}"
    known = ", ".join(_CLASSES[t] for t in dict.fromkeys(takes))
    raise TypeError(
        f"{name} does not accept dtype {kind.name}{at}. Accepted dtypes{at} are subtypes of {known}."
    )


def check_same_types(name: str, arrays: Sequence[Array]) -> None:
    """Raise ``TypeError`` unless all have one element type."""
    kinds = [a.dtype for a in arrays]
    if any(k != kinds[0] for k in kinds):
        tip = _TIPS.get(name)
        raise TypeError(
            f"lax.{name} requires arguments to have the same dtypes, got "
            f"{', '.join(k.name for k in kinds)}."
            + (f" (Tip: jnp.{tip} is a similar function that does automatic type promotion on "
               "inputs)." if tip else "")
        )  # fmt: skip


def common_shape(name: str, arrays: Sequence[Array]) -> tuple[int, ...]:
    """The shape that operands have together."""
    shapes = [a.shape for a in arrays if a.shape]
    if len({len(s) for s in shapes}) > 1:
        ranks = ", ".join(map(str, sorted({len(s) for s in shapes})))
        raise TypeError(f"{name}: arrays must have the same number of dimensions, got {{{ranks}}}")
    out = tuple(next((n for n in sizes if n != 1), 1) for sizes in zip(*shapes, strict=True))
    if any(n not in (1, m) for s in shapes for n, m in zip(s, out, strict=True)):
        text = ", ".join(map(str, shapes))
        raise TypeError(f"{name} got incompatible shapes for broadcasting: {text}.")
    return out


def _unary(name: str, fn: Callable, takes: str) -> Callable:
    def run(x: Any, accuracy: Any = None) -> Array:
        a = value_of(name, x)
        accepts(name, a.dtype, takes)
        return wrap(fn(a._value), a.weak_type)

    return _named(run, name)


def _binary(name: str, fn: Callable, takes: str) -> Callable:
    def run(x: Any, y: Any) -> Array:
        a, b = value_of(name, x), value_of(name, y, 1)
        for i, v in enumerate((a, b)):
            accepts(name, v.dtype, takes, i)
        check_same_types(name, (a, b))
        common_shape(name, (a, b))
        return wrap(fn(a._value, b._value), a.weak_type and b.weak_type)

    return _named(run, name)


def _named(run: Callable, name: str) -> Callable:
    run.__name__ = run.__qualname__ = name
    run.__module__, run.__doc__ = "jax.lax", f"XLA's ``{name}`` of each element."
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


def is_finite(x: Any) -> Array:
    """Whether elements are finite."""
    a = value_of("is_finite", x)
    accepts("is_finite", a.dtype, "f")
    return wrap(ops.isfinite(a._value), a.weak_type)


def real(x: Any) -> Array:
    """Real parts."""
    return wrap(ops.real(_complex_of("real", x)._value).clone())


def imag(x: Any) -> Array:
    """Imaginary parts."""
    return wrap(ops.imag(_complex_of("imag", x)._value).clone())


def _complex_of(name: str, x: Any) -> Array:
    a = value_of(name, x)
    accepts(name, a.dtype, "c")
    return a


def conj(x: Any) -> Array:
    """Conjugates; complex, of real numbers too."""
    a = value_of("conj", x)
    accepts("conj", a.dtype, "fc")
    wide = np.dtype("complex128" if a.dtype.itemsize == 8 and a.dtype.kind == "f" else "complex64")
    value = a._value if a.dtype.kind == "c" else a._value.to(dtypes.of(wide))
    return wrap(ops.conj(value), a.weak_type)


def complex(x: Any, y: Any) -> Array:  # noqa: A001
    """``x + iy``."""
    a, b = value_of("complex", x), value_of("complex", y, 1)
    check_same_types("complex", (a, b))
    common_shape("complex", (a, b))
    u, v = ops.broadcast_tensors(a._value, b._value)
    return wrap(ops.complex(u, v), a.weak_type and b.weak_type)


def round(x: Any, rounding_method: RoundingMethod = RoundingMethod.AWAY_FROM_ZERO) -> Array:  # noqa: A001
    """The nearest whole numbers."""
    a = value_of("round", x)
    accepts("round", a.dtype, "f")
    even = RoundingMethod(rounding_method) is RoundingMethod.TO_NEAREST_EVEN
    return wrap(ops.round(a._value) if even else words.round_away(a._value), a.weak_type)


def pow(x: Any, y: Any) -> Array:  # noqa: A001
    """``x ** y``; ``y`` may be an integer for any ``x``."""
    a, b = value_of("pow", x), value_of("pow", y, 1)
    accepts("pow", a.dtype, "fc", 0)
    accepts("pow", b.dtype, "ifc", 1)
    common_shape("pow", (a, b))
    if b.dtype.kind in "iu":
        whole = y if isinstance(y, int) else None
        if whole is not None:
            return integer_pow(a, whole)
        return wrap(elements.power(a._value, b._value.to(a._value.dtype)), a.weak_type)
    check_same_types("pow", (a, b))
    return wrap(elements.power(a._value, b._value), a.weak_type and b.weak_type)


def integer_pow(x: Any, y: int) -> Array:
    """``x`` to a whole power."""
    a = value_of("integer_pow", x)
    accepts("integer_pow", a.dtype, "ifc")
    if y < 0 and a.dtype.kind in "iu":
        raise TypeError(f"Integers cannot be raised to negative powers, got integer_pow({x}, {y})")
    return wrap(a._value**y, a.weak_type)


def polygamma(m: Any, x: Any) -> Array:
    """The polygamma function of order ``m``."""
    a, b = value_of("polygamma", m), value_of("polygamma", x, 1)
    check_same_types("polygamma", (a, b))
    return wrap(words.polygamma(a._value, b._value))


def clamp(min: Any, x: Any, max: Any) -> Array:  # noqa: A002
    """``x`` between ``min`` and ``max``."""
    arrays = [value_of("clamp", v, i) for i, v in enumerate((min, x, max))]
    check_same_types("clamp", arrays)
    low, a, high = arrays
    for name, v in (("min", low), ("max", high)):
        if v.shape and v.shape != a.shape:
            raise TypeError(
                f"clamp requires {name}.shape == operand.shape or {name}.shape == (), got "
                f"{name}.shape={v.shape}, operand.shape={a.shape}."
            )
    out = ops.minimum(ops.maximum(low._value, a._value), high._value)
    return wrap(out, all(v.weak_type for v in arrays))


def select(pred: Any, on_true: Any, on_false: Any) -> Array:
    """``on_true`` where ``pred`` holds."""
    return select_n(pred, on_false, on_true)


def select_n(which: Any, *cases: Any) -> Array:
    """The case of each number (or flag) of ``which``."""
    if not cases:
        raise ValueError("select_n() must have at least one case")
    place = value_of("select_n", which)
    arrays = [value_of("select_n", c, i + 1) for i, c in enumerate(cases)]
    if place.dtype.kind not in "bi":
        raise TypeError(f"select `which` must be boolean or integer type, got {place.dtype.name}.")
    if place.dtype.kind == "b" and len(cases) > 2:
        raise TypeError(
            f"select with boolean `which` cannot have > 2 cases, got {len(cases)} cases."
        )
    if any(a.shape != arrays[0].shape for a in arrays):
        raise TypeError(f"select cases must have the same shapes, got [{', '.join(str(a.shape) for a in arrays)}].")
    if place.shape and place.shape != arrays[0].shape:
        raise TypeError(
            "select `which` must be scalar or have the same shape as cases, got `which` shape "
            f"{place.shape} but case shape {arrays[0].shape}."
        )
    check_same_types("select", arrays)
    out = arrays[0]._value
    for i, a in enumerate(arrays[1:], 1):
        out = ops.where(place._value if place.dtype.kind == "b" else place._value >= i, a._value, out)
    return wrap(out, all(a.weak_type for a in arrays))


def convert_element_type(operand: Any, new_dtype: Any) -> Array:
    """``operand`` in another type."""
    a = value_of("convert_element_type", operand)
    kind = canonical(new_dtype)
    return wrap(cast(a._value, kind))


def bitcast_convert_type(operand: Any, new_dtype: Any) -> Array:
    """The bits of ``operand`` as another type."""
    a, kind = value_of("bitcast_convert_type", operand), canonical(new_dtype)
    own, new = a.dtype.itemsize, kind.itemsize
    if new > own and (not a.shape or a.shape[-1] * own != new):
        raise ValueError(
            f"Attempting to convert array of shape {a.shape} from {a.dtype.name} of size "
            f"{8 * own} bits to {kind.name} of size {8 * new}, bits but {a.shape[-1] if a.shape else 1}"
            f" * {8 * own} != {8 * new}"
        )
    return wrap(words.bitcast(a._value, kind))


def reduce_precision(operand: Any, exponent_bits: int, mantissa_bits: int) -> Array:
    """``operand`` with so many bits."""
    a = value_of("reduce_precision", operand)
    accepts("reduce_precision", a.dtype, "f")
    return wrap(words.reduce_precision(a._value, exponent_bits, mantissa_bits), a.weak_type)


def stop_gradient(x: Any) -> Any:
    """``x``, as a constant to derivatives."""
    return tree.tree_map(
        lambda v: wrap(held(as_array(v)._value), as_array(v).weak_type)
        if isinstance(v, Array) and v.dtype.kind in "fcV" else v, x)  # fmt: skip


def optimization_barrier(operand: Any, /) -> Any:
    """``operand``: what is computed before is not moved behind it (nothing is moved here)."""
    return tree.tree_map(as_array, operand)


for _fn in (
    is_finite, real, imag, conj, complex, round, pow, integer_pow, polygamma, clamp, select,
    select_n, convert_element_type, bitcast_convert_type, reduce_precision, stop_gradient,
    optimization_barrier,
):  # fmt: skip
    NAMES[_fn.__name__] = _fn
NAMES |= {"RoundingMethod": RoundingMethod, "Precision": Precision}
