"""Windows: numbers by which the points of a part of a signal are multiplied. One of
``window_length + 1`` points without its last is periodic, for transforms (the default)."""

from __future__ import annotations

import math
from collections.abc import Callable

from ....core.annotations import DeviceLike, DTypeLike
from ....core.tensor import Tensor
from ....core.types import dtypes
from ....errors import ConfigError, DTypeError
from ..creation.create import arange, ones
from ..elementwise import abs, cos, sqrt, square
from ..special import i0


def _window(
    where: str, length: int, periodic: bool, shape: Callable[[Tensor, int], Tensor],
    dtype: DTypeLike | None, device: DeviceLike | None, requires_grad: bool,
) -> Tensor:  # fmt: skip
    """``shape(0 ... points - 1, points - 1)``, computed in float64 where that is the wider type."""
    kind = dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)
    if not kind.is_floating_point:
        raise DTypeError(f"{where} expects floating point dtypes, got: {kind!r}")
    if length < 0:
        raise ConfigError(
            f"{where} requires non-negative window_length, got window_length={length}"
        )
    if length <= 1:
        out = ones(length, dtype=kind, device=device)
    else:
        points = length + 1 if periodic else length
        wide = dtypes.float64 if kind is dtypes.float64 else dtypes.float32
        made = shape(arange(points, dtype=wide, device=device), points - 1)
        out = made[:length].to(kind).clone()
    return out.requires_grad_() if requires_grad else out


def bartlett_window(
    window_length: int, periodic: bool = True, *, dtype: DTypeLike | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """A triangle from 0 to 1 and back."""

    def shape(n: Tensor, last: int) -> Tensor:
        return 1 - abs(n * (2.0 / last) - 1)

    return _window("bartlett_window", window_length, periodic, shape, dtype, device, requires_grad)


def hamming_window(
    window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *,
    dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """alpha - beta cos(2 pi n / N)."""

    def shape(n: Tensor, last: int) -> Tensor:
        return alpha - beta * cos(n * (2 * math.pi / last))

    return _window("hamming_window", window_length, periodic, shape, dtype, device, requires_grad)


def hann_window(
    window_length: int, periodic: bool = True, *, dtype: DTypeLike | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """(1 - cos(2 pi n / N)) / 2."""

    def shape(n: Tensor, last: int) -> Tensor:
        return 0.5 - 0.5 * cos(n * (2 * math.pi / last))

    return _window("hann_window", window_length, periodic, shape, dtype, device, requires_grad)


def blackman_window(
    window_length: int, periodic: bool = True, *, dtype: DTypeLike | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """0.42 - 0.5 cos(2 pi n / N) + 0.08 cos(4 pi n / N), not below 0."""

    def shape(n: Tensor, last: int) -> Tensor:
        angle = n * (2 * math.pi / last)
        return (0.42 - 0.5 * cos(angle) + 0.08 * cos(angle * 2)).clamp(min=0)

    return _window("blackman_window", window_length, periodic, shape, dtype, device, requires_grad)


def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, *,
    dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """I0(beta sqrt(1 - (2 n / N - 1)^2)) / I0(beta), I0 the modified Bessel function."""

    def shape(n: Tensor, last: int) -> Tensor:
        inside = (1 - square(n * (2.0 / last) - 1)).clamp(min=0)
        return i0(sqrt(inside) * beta) / i0(n.new_tensor(beta))

    return _window("kaiser_window", window_length, periodic, shape, dtype, device, requires_grad)
