"""Functions of Tensors as functions of JAX's arrays: operands of one type by JAX's lattice, results
with the right weak type, errors in JAX's words and classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ....core.tensor import Tensor
from ....core.tensor import wrap as tensor
from ....errors import DTypeError, ShapeError
from ....ops import api as ops
from .. import types
from ..array import Array, wrap

NUMBERS = (bool, int, float, complex)
_PLAIN = {bool, int, float, complex}
_DIRECT = {("float32", float), ("float32", int), ("float64", float), ("float64", int)}
_NUMBERED: Any = {(types.named(n), k) for n, k in _DIRECT}  # a number needs no tensor
To = Callable[[np.dtype], np.dtype]


# --- in ------------------------------------------------------------------------------------------
def plain(x: Any) -> Any:
    """``x``, or what its ``__jax_array__`` gives."""
    if x.__class__ is Array or x.__class__ in _PLAIN:
        return x
    give = getattr(x, "__jax_array__", None)
    return x if give is None else give()


def kind_of(x: Any, where: str, place: int = 0) -> types.Kind:
    """The element type of an operand and whether it is weak."""
    if x.__class__ is Array:
        return x._value.meta()[1], x.weak_type
    if isinstance(x, (np.ndarray, np.generic, Tensor)):
        return types.canonical(x.meta()[1] if isinstance(x, Tensor) else x.dtype), False
    if isinstance(x, NUMBERS):
        return types.of_number(x)
    raise TypeError(
        f"{where} requires ndarray or scalar arguments, got {type(x)} at position {place}."
    )


def to_tensor(x: Any, kind: np.dtype) -> Tensor:
    """An operand as a tensor of that type."""
    if x.__class__ is Array:
        return cast(x._value, kind)
    if isinstance(x, Tensor):
        return cast(x, kind)
    if isinstance(x, int) and kind.kind in "iu" and not isinstance(x, np.generic):
        bits = 8 * kind.itemsize  # as C does, and JAX: what does not fit wraps around
        x &= (1 << bits) - 1
        x -= (1 << bits) if kind.kind == "i" and x >> (bits - 1) else 0
    return tensor(np.array(x, kind))


def cast(value: Tensor, kind: np.dtype) -> Tensor:
    """``value`` in the type ``kind``; of complex numbers the real part."""
    own = value.meta()[1]
    if own is kind or own == kind:
        return value
    if own.kind == "c" and kind.kind != "c":
        value = ops.real(value) if kind.kind != "b" else value
    return value.to(types.dtypes.of(kind))


def operands(where: str, xs: Iterable[Any], to: To | None = None) -> tuple[list[Tensor], bool]:
    """Operands as tensors of the type they meet in (or what ``to`` makes of it), and whether it is
    weak."""
    given = [plain(x) for x in xs]
    kinds = [kind_of(x, where, i) for i, x in enumerate(given)]
    kind, weak = types.result_kind(*kinds) if len(kinds) > 1 else kinds[0]
    if to is not None:
        kind = to(kind)
    return [to_tensor(x, kind) for x in given], weak


def one(where: str, x: Any, to: To | None = None) -> Tensor:
    """An operand as a tensor."""
    x = plain(x)
    kind = kind_of(x, where)[0]
    return to_tensor(x, kind if to is None else to(kind))


def weak_of(x: Any) -> bool:
    """Whether the type of an operand is weak."""
    return x.weak_type if x.__class__ is Array else x.__class__ in (int, float, complex)


# --- out -----------------------------------------------------------------------------------------
def given_back(value: Any, weak: bool = False) -> Any:
    """A result, or several, as arrays, with integers of 32 bits where those of 64 are off."""
    if isinstance(value, (tuple, list)):
        parts = [given_back(v, weak) for v in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if not isinstance(value, Tensor):
        return value
    kind = value.meta()[1]
    return wrap(value if kind.itemsize < 8 else cast(value, types.canonical(kind)), weak)


def misfit(where: str, tensors: Iterable[Any]) -> TypeError:
    """What is told of shapes that do not go together."""
    shapes = ", ".join(str(tuple(t.shape)) for t in tensors if isinstance(t, Tensor))
    return TypeError(f"{where} got incompatible shapes for broadcasting: {shapes}.")


def refused(where: str, x: Tensor) -> Exception:
    """What is told of an element type that a function does not take."""
    error = ValueError if where in _VALUES else TypeError
    return error(f"{where} does not accept dtype {x.meta()[1].name}.")


_WITH_NUMBERS = set(  # whose functions take numbers beside tensors
    "add subtract multiply true_divide divide equal not_equal less less_equal greater remainder "
    "greater_equal mod".split()
)
_VALUES = {"gcd", "lcm", "hypot", "spacing", "i0", "signbit", "isposinf", "isneginf"}


def binary(where: str, fn: Callable, to: To | None = None, strong: bool = False) -> Callable:
    """A function of two operands of one type; ``strong``: its result is never weak."""
    direct = _NUMBERED if where in _WITH_NUMBERS else set()

    def run(x: Any, y: Any, /) -> Array:
        if to is None and x.__class__ is Array:
            a, kind = x._value, x._value.meta()[1]
            if y.__class__ is Array:
                b = y._value
                if b.meta()[1] is kind:
                    return done((a, b), x.weak_type and y.weak_type)
            elif (kind, y.__class__) in direct:
                return done((a, y), x.weak_type)
        tensors, weak = operands(where, (x, y), to)
        return done(tensors, weak)

    def done(tensors: Any, weak: bool) -> Array:
        try:
            return wrap(fn(*tensors), weak and not strong)
        except ShapeError:
            raise misfit(where, tensors) from None
        except DTypeError:
            raise refused(where, tensors[0]) from None

    return named(run, where)


def unary(where: str, fn: Callable, to: To | None = None, strong: bool = False) -> Callable:
    """A function of one operand; ``strong``: its result is never weak."""

    def run(x: Any, /) -> Array:
        (value,), weak = operands(where, (x,), to)
        try:
            return wrap(fn(value), weak and not strong)
        except DTypeError:
            raise refused(where, value) from None

    return named(run, where)


def named(run: Callable, where: str) -> Callable:
    """``run`` under its name in JAX."""
    run.__name__ = run.__qualname__ = where
    run.__module__ = "jax.numpy"
    run.__doc__ = run.__doc__ or f"NumPy's ``{where}`` of JAX's arrays."
    return run


# --- axes ----------------------------------------------------------------------------------------
def axis_of(axis: Any, ndim: int) -> int:
    """One axis as a number from 0 on."""
    number = axis.__index__() if hasattr(axis, "__index__") else axis
    if not isinstance(number, int):
        raise TypeError(f"'{type(axis).__name__}' object cannot be interpreted as an integer")
    if not -ndim <= number < ndim:
        raise ValueError(f"axis {number} is out of bounds for array of dimension {ndim}")
    return number % ndim


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """``axis`` (None: all) as numbers from 0 on."""
    if axis is None:
        return tuple(range(ndim))
    if not isinstance(axis, (tuple, list, np.ndarray)):
        return (axis_of(axis, ndim),)
    out = tuple(axis_of(a, ndim) for a in axis)
    if len(set(out)) != len(out):
        raise ValueError(f"duplicate value in 'axis': {axis}")
    return out


def no_out(where: str, out: Any) -> None:
    """JAX's functions write to no array that is given."""
    if out is not None:
        raise NotImplementedError(f"The 'out' argument to jnp.{where} is not supported.")


def shape_of(shape: Any, where: str = "shape") -> tuple[int, ...]:
    """A shape as a tuple of integers."""
    if hasattr(shape, "__index__"):
        return (shape.__index__(),)
    try:
        return tuple(n.__index__() for n in shape)
    except (TypeError, AttributeError):
        raise TypeError(
            f"Shapes must be 1D sequences of concrete values of integer type, got {shape}."
        ) from None
