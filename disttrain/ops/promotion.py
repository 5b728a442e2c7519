"""What element type an operation computes in, by PyTorch's rules, before its forward runs.

Tensors with dimensions decide; 0-d tensors and then Python scalars matter only when they are of a
higher category (bool < integer < floating < complex).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import core
from ..core import dtypes
from ..core.tensor import Tensor, wrap
from ..errors import DTypeError

_SCALARS = (bool, int, float, complex)


def scalar(value: Any) -> Any:
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
        elif isinstance(a, dtypes.dtype):
            level, kind = 0, a
        else:
            level, kind = 2, _scalar_type(a)
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


def _scalar_type(a: Any) -> dtypes.dtype:
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


def _fit_scalar(value: Any, kind: dtypes.dtype) -> Any:
    """Scalars stay Python's (numpy gives them the array's type), except where numpy would not."""
    if kind.is_floating_point:
        if kind.np.kind == "V" or isinstance(value, bool):
            return kind.np.type(value)
        return float(value)
    if kind.is_complex:
        return complex(value)
    if kind is dtypes.bool:
        return bool(value)
    if value < 0 and not kind.is_signed:
        return kind.np.type(np.int64(value))
    return int(value)


def same_type_args(args: tuple) -> tuple:
    """All arguments in one type."""
    a, b = args
    if isinstance(a, Tensor) and isinstance(b, Tensor) and a.meta()[1] == b.meta()[1]:
        return args
    args = (_scalar_or_tensor(a), _scalar_or_tensor(b))
    return convert(args, result_type(*args))


def _scalar_or_tensor(a: Any) -> Any:
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
    return convert(args, kind)
