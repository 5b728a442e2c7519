"""What element type an operation computes in, by PyTorch's rules, before its forward runs.

Tensors with dimensions decide; 0-d tensors and then Python scalars matter only when they are of a
higher category (bool < integer < floating < complex).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import core
from ..context import thread
from ..core.tensor import Tensor, wrap
from ..core.types import dtypes
from ..core.types.wide import is_half
from ..errors import DTypeError
from ..symbolic import as_float, as_int

_SCALARS = (bool, int, float, complex)


def scalar(value: float | complex | np.generic) -> Any:
    """A Python scalar for a number of any library (numpy scalars included)."""
    if value.__class__ in _SCALARS:
        return value
    if isinstance(value, (np.generic, np.ndarray)) and value.ndim == 0:
        return value.item()
    return value


def result_type(*args: Any) -> dtypes.dtype:
    """The type that an operation on ``args`` (Tensors and scalars) computes in."""
    best: list = [None, None, None]
    for a in args:
        if isinstance(a, Tensor):
            level, kind = (0 if a.ndim else 1), a.dtype
            if a._composes is not None:  # of its numbers, where they are kept as others
                kind = dtypes.of(a.meta()[1])
        elif isinstance(a, dtypes.dtype):
            level, kind = 0, a
        else:
            level, kind = 2, _scalar_type(scalar(a))
        best[level] = kind if best[level] is None else dtypes.promote_types(best[level], kind)
    result = None
    for kind in best:
        if kind is None:
            continue
        if result is None:
            result = kind
        elif dtypes.category(kind) > dtypes.category(result):
            result = _raise(result, kind)
    assert result is not None
    return result


def _raise(low: dtypes.dtype, high: dtypes.dtype) -> dtypes.dtype:
    if high.is_complex and low.is_floating_point:
        return low.to_complex()
    return high


def _scalar_type(a: float) -> dtypes.dtype:
    if isinstance(a, bool):
        return dtypes.bool
    if isinstance(a, int):
        return dtypes.int64
    if isinstance(a, float):
        return dtypes.get_default_dtype()
    if isinstance(a, complex):
        return dtypes.get_default_dtype().to_complex()
    raise DTypeError(
        f"operand of type {type(a).__name__}: a Tensor or a number is needed; convert it with "
        "dt.tensor(...) first"
    )


def convert(args: tuple, kind: dtypes.dtype) -> tuple:
    """Tensors and scalars as ``kind``."""
    out = []
    for a in args:
        if isinstance(a, Tensor):
            out.append(a if a.meta()[1] == kind.np else core.Algebra.cast(a, kind.np))
        else:
            out.append(_fit_scalar(scalar(a), kind))
    return tuple(out)


def _fit_scalar(value: float, kind: dtypes.dtype) -> Any:
    """Scalars stay Python's (numpy gives them the array's type), except where numpy would not.
    Integers that the type cannot hold wrap around, as those in tensors do."""
    if kind.is_floating_point:
        if kind.np.kind == "V" or isinstance(value, bool):
            return kind.np.type(value)
        return as_float(value)
    if kind.is_complex:
        return complex(value)
    if kind is dtypes.bool:
        return bool(value)
    whole = as_int(value)
    low, high = _RANGES[kind]
    return whole if low <= whole <= high else _wrapped(whole, kind)


_RANGES = {
    kind: (int(np.iinfo(kind.np).min), int(np.iinfo(kind.np).max))
    for kind in dtypes.ALL
    if kind.np.kind in "iu"
}


_LARGEST = {
    dtypes.float8_e4m3fn: 448.0, dtypes.float8_e5m2: 57344.0, dtypes.float16: 65504.0,
    dtypes.float8_e4m3fnuz: 240.0, dtypes.float8_e5m2fnuz: 57344.0,
    dtypes.float8_e8m0fnu: 2.0**127,
    dtypes.bfloat16: (2 - 2.0**-7) * 2.0**127, dtypes.float32: (2 - 2.0**-23) * 2.0**127,
    dtypes.float64: (2 - 2.0**-52) * 2.0**1023,
}  # fmt: skip


def _wrapped(value: int, kind: dtypes.dtype) -> int:
    low, high = _RANGES[kind]
    return (value - low) % (high - low + 1) + low


def fitted(where: str, value: Any, kind: dtypes.dtype) -> Any:
    """A number as it is written to elements of ``kind``; ``DTypeError`` where it does not fit.

    Unsigned types count negative numbers from their end, as PyTorch has it.
    """
    if kind is dtypes.float32 and value.__class__ is float and -1e38 < value < 1e38:
        return value  # the commonest
    value = scalar(value)
    fits = True
    if isinstance(value, complex):
        fits = kind.is_complex or kind is dtypes.bool or value.imag == 0
        value = value if kind.is_complex or kind is dtypes.bool else value.real
    if fits and kind in _RANGES:
        low, high = _RANGES[kind]
        least = low or (0 if isinstance(value, float) else -high)
        fits = value == value and least <= value <= high
        value = _fit_scalar(value, kind) if fits else value
    elif fits and kind.is_floating_point and abs(value) != np.inf:
        fits = not abs(value) > _LARGEST[kind]
    if not fits:
        raise DTypeError(
            f"{where}: value {value!r} cannot be converted to {kind!r} without overflow; use a "
            "wider type, or clamp the value first"
        )
    return value


def factor(where: str, alpha: float, kind: dtypes.dtype) -> Any:
    """``alpha`` as a number of ``kind``; of integers its whole part, as in PyTorch."""
    if kind is dtypes.bool:
        return bool(alpha)
    whole = not (kind.is_floating_point or kind.is_complex)
    return fitted(where, int(alpha) if whole else alpha, kind)


# --- which types an operation takes -------------------------------------------------------------
_KINDS = {"b": "booleans", "i": "integers", "u": "integers", "f": "floating-point numbers",
          "V": "floating-point numbers", "c": "complex numbers"}  # fmt: skip


def refuse(where: str, kind: np.dtype) -> DTypeError:
    """The error of an operation that has no meaning for ``kind``."""
    of_what = (
        "Low precision dtypes not supported"
        if is_half(kind)
        else (f"it is not implemented for {_KINDS[kind.kind]}")
    )
    return DTypeError(
        f"{where}: {dtypes.of(kind)!r} given; {of_what}; "
        "convert the tensor first, for example with .float()"
    )


def only(where: str, kinds: str, then: Callable | None = None) -> Callable:
    """The promotion ``then``, for results whose numpy kind is one of ``kinds`` (or, after spaces,
    whose type is: "f4 f8")."""
    exact = frozenset(map(np.dtype, kinds.split())) if " " in kinds else None

    def promote(args: tuple) -> tuple:
        args = args if then is None else then(args)
        for a in args:
            if isinstance(a, Tensor):
                kind = a.meta()[1]
                if kind.kind not in kinds if exact is None else kind not in exact:
                    raise refuse(where, kind)
                break
        return args

    return promote


def no_bool(where: str, then: Callable) -> Callable:
    """The promotion ``then``, for operands none of which is boolean."""

    def promote(args: tuple) -> tuple:
        for a in args:
            if a.__class__ is bool or (isinstance(a, Tensor) and a.meta()[1].kind == "b"):
                raise DTypeError(
                    f"{where}: a boolean operand given; subtraction is not defined for booleans; "
                    "use ^, logical_xor or logical_not"
                )
        return then(args)

    return promote


def same_type(where: str, *tensors: Tensor | None) -> None:
    """``DTypeError`` unless all have one element type (None: not given). Floating types may differ
    where autocast chooses the one to compute in."""
    kinds = {t.meta()[1] for t in tensors if t is not None}
    if len(kinds) > 1 and (thread.autocast is None or any(k.kind not in "fV" for k in kinds)):
        given = " and ".join(repr(t.dtype) for t in tensors if t is not None)
        titles = ", ".join(t.dtype.title for t in tensors if t is not None)
        raise DTypeError(
            f"{where}: all tensors must have the same dtype; expected the first one and the others "
            f"to have the same dtype, but got: {given} ({titles}); convert them to one type first, "
            "for example with .to(other.dtype)"
        )


def same_type_args(args: tuple) -> tuple:
    """All arguments in one type."""
    a, b = args
    if isinstance(a, Tensor) and isinstance(b, Tensor) and a.meta()[1] == b.meta()[1]:
        return args
    args = (_scalar_or_tensor(a), _scalar_or_tensor(b))
    return _with_a_tensor(args, result_type(*args))


def _scalar_or_tensor(a: Tensor | float) -> Any:
    if isinstance(a, Tensor):
        return a
    return wrap(a) if isinstance(a, np.ndarray) and a.ndim else scalar(a)


def float_args(args: tuple) -> tuple:
    """All arguments in one floating (or complex) type: integers become the default type."""
    first = args[0]
    if len(args) == 1:
        kind = first.meta()[1].kind
        return args if kind in "fcV" else convert(args, dtypes.get_default_dtype())
    args = tuple(_scalar_or_tensor(a) for a in args)
    kind = result_type(*args)
    if not (kind.is_floating_point or kind.is_complex):
        kind = dtypes.get_default_dtype()
    return _with_a_tensor(args, kind)


def _with_a_tensor(args: tuple, kind: dtypes.dtype) -> tuple:
    """``convert``; of numbers alone one becomes a tensor, for numpy would choose its own type."""
    first, *rest = args = convert(args, kind)
    if any(isinstance(a, Tensor) for a in args):
        return args
    return wrap(np.asarray(first, kind.np)), *rest
