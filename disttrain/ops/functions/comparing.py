"""Public questions about whole tensors: closeness, kinds of types, sizes. Torch's names."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.annotations import Operand
from ...core.classes import values_of
from ...core.tensor import Tensor
from ...core.types import dtypes
from ...errors import ConfigError
from ..promotion import result_type as _result_type
from ..promotion import same_type
from .args import tensor as as_input


def equal(input: Tensor, other: Tensor) -> bool:
    """Whether shapes and all elements are equal."""
    if input.is_quantized:  # whose grids are compared as well
        return bool(input.equal(other))
    if not input.is_cpu:  # one flag comes to the host, instead of all numbers
        return tuple(input.shape) == tuple(other.shape) and bool((input == other).all())
    return tuple(input.shape) == tuple(other.shape) and bool(
        np.array_equal(values_of(input), values_of(other))
    )


def isclose(
    input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """Elementwise ``|input - other| <= atol + rtol * |other|``."""
    return _close("isclose", input, other, rtol, atol, equal_nan)


def _tolerance(where: str, value: Any) -> Any:
    """A number, which may be given as a tensor that is no part of a graph."""
    if not isinstance(value, Tensor):
        return value
    if value.requires_grad:
        raise TypeError(f"{where}: rtol and atol must be numbers, not tensors that require grad")
    return value.item()


def _close(
    where: str, input: Tensor, other: Tensor, rtol: float, atol: float, equal_nan: bool
) -> Tensor:
    same_type(where, as_input(input, where), as_input(other, where, "other"))
    rtol, atol = (_tolerance(where, t) for t in (rtol, atol))
    if rtol < 0 or atol < 0:
        raise ConfigError(f"{where}: rtol={rtol}, atol={atol} given; neither may be negative")
    a: Any = input.detach()
    b: Any = other.detach()
    close = a == b
    if equal_nan:
        close = close | ((a != a) & (b != b))  # noqa: PLR0124
    if not rtol and not atol:
        return close
    kind = dtypes.get_default_dtype()
    a = a.to(kind) if a.dtype is dtypes.bool else a
    b = b if b.dtype.is_floating_point or b.dtype.is_complex else b.to(kind)
    off = (a - b).abs()
    return close | (off.isfinite() & (off <= atol + (rtol * b).abs()))


def allclose(
    input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    """Whether all elements are close."""
    return bool(_close("allclose", input, other, rtol, atol, equal_nan).all())


def is_tensor(obj: object) -> bool:
    return isinstance(obj, Tensor)


def is_floating_point(input: Tensor) -> bool:
    return input.dtype.is_floating_point


def is_complex(input: Tensor) -> bool:
    return input.dtype.is_complex


def is_nonzero(input: Tensor) -> bool:
    return bool(input)


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether both have one shape."""
    return tuple(input.shape) == tuple(other.shape)


def is_signed(input: Tensor) -> bool:
    """Whether its type has negative numbers."""
    return input.dtype.is_signed


def numel(input: Tensor) -> int:
    return input.shape.numel()


def result_type(a: Operand, b: Operand) -> dtypes.dtype:
    """The type that an operation on both computes in."""
    return _result_type(a, b)


def can_cast(from_: dtypes.dtype, to: dtypes.dtype) -> bool:
    return dtypes.category(from_) <= dtypes.category(to)


__all__ = [
    "allclose",
    "can_cast",
    "equal",
    "is_complex",
    "is_floating_point",
    "is_nonzero",
    "is_same_size",
    "is_signed",
    "is_tensor",
    "isclose",
    "numel",
    "result_type",
]
