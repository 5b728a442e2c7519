"""``dt.signal.windows``: windows of ``M`` points as filters need them, under the names of
``torch.signal.windows``. ``sym=False``: a periodic one, that of M + 1 points without its last.

Sums of cosines: Harris, "On the use of windows for harmonic analysis with the discrete Fourier
transform", 1978; Nuttall, "Some windows with very good sidelobe behavior", 1981.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any

from .. import ops
from ..core.annotations import DeviceLike, DTypeLike
from ..core.tensor import Tensor
from ..core.types import dtypes
from ..core.types.layout import layout as Layout  # noqa: N812
from ..core.types.layout import strided
from ..errors import ConfigError, DTypeError
from ..ops.functions.special import i0

_HAMMING = 0.54  # the first cosine's share that takes away the first sidelobe
_NUTTALL = (0.3635819, 0.4891775, 0.1365995, 0.0106411)
_BLACKMAN = (0.42, 0.5, 0.08)


def _checked(where: str, M: int, dtype: DTypeLike | None, layout: Layout) -> dtypes.dtype:  # noqa: N803
    kind = dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)
    if M < 0:
        raise ConfigError(f"{where} requires non-negative window length, got M={M}")
    if layout is not strided:
        raise ConfigError(f"{where} is implemented for strided tensors only, got: {layout!r}")
    if kind not in (dtypes.float32, dtypes.float64):
        raise DTypeError(f"{where} expects float32 or float64 dtypes, got: {kind!r}")
    return kind


def _window(of: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """From ``of(n, last, ...)``, the values at points ``n`` = 0 ... last, the public function."""

    @functools.wraps(of)
    def window(
        M: int, *, sym: bool = True, dtype: DTypeLike | None = None, layout: Layout = strided,  # noqa: N803
        device: DeviceLike | None = None, requires_grad: bool = False, **shape: Any,
    ) -> Tensor:  # fmt: skip
        points = int(M)  # (or a tensor of one number)
        kind = _checked(of.__name__, points, dtype, layout)
        last = points - 1 if sym else points
        n = ops.arange(points, dtype=dtypes.float64, device=device)
        out = of(n, last, **shape)
        out = (ops.ones_like(out) if points == 1 else out).to(kind).clone()
        return out.requires_grad_() if requires_grad else out

    return window


def _cosines(n: Tensor, last: int, shares: Iterable[float]) -> Tensor:
    angle = n * (2 * math.pi / max(last, 1))
    out = ops.zeros_like(n)
    for k, share in enumerate(shares):
        out = out + (-1) ** k * share * ops.cos(angle * k)
    return out


@_window
def bartlett(n: Tensor, last: int) -> Tensor:
    """A triangle from 0 to 1 and back."""
    return 1 - ops.abs(n * (2.0 / max(last, 1)) - 1)


@_window
def blackman(n: Tensor, last: int) -> Tensor:
    """0.42 - 0.5 cos(2 pi n / N) + 0.08 cos(4 pi n / N)."""
    return _cosines(n, last, _BLACKMAN)


@_window
def cosine(n: Tensor, last: int) -> Tensor:
    """sin(pi (n + 1/2) / (N + 1)): half a wave."""
    return ops.sin((n + 0.5) * (math.pi / (last + 1)))


@_window
def exponential(n: Tensor, last: int, *, center: float | None = None, tau: float = 1.0) -> Tensor:
    """exp(-|n - center| / tau); the center of a symmetric window is its middle."""
    if tau <= 0:
        raise ConfigError(f"exponential: Tau must be positive, got: {tau} instead.")
    if center is not None and last == n.numel() - 1:
        raise ConfigError("exponential: Center must be None for symmetric windows")
    return ops.exp(-ops.abs(n - (last / 2 if center is None else center)) / tau)


@_window
def gaussian(n: Tensor, last: int, *, std: float = 1.0) -> Tensor:
    """exp(-((n - N / 2) / std)^2 / 2)."""
    if std <= 0:
        raise ConfigError(f"gaussian: Standard deviation must be positive, got: {std} instead.")
    return ops.exp(-0.5 * ops.square((n - last / 2) / std))


@_window
def general_cosine(n: Tensor, last: int, *, a: Iterable[float]) -> Tensor:
    """sum (-1)^k a[k] cos(2 pi k n / N)."""
    if not isinstance(a, Iterable):
        raise TypeError("general_cosine: Coefficients must be a list/tuple")
    shares = tuple(a)
    if not shares:
        raise ConfigError("general_cosine: Coefficients cannot be empty")
    return _cosines(n, last, shares)


@_window
def general_hamming(n: Tensor, last: int, *, alpha: float = _HAMMING) -> Tensor:
    """alpha - (1 - alpha) cos(2 pi n / N)."""
    return _cosines(n, last, (alpha, 1 - alpha))


@_window
def hamming(n: Tensor, last: int) -> Tensor:
    """0.54 - 0.46 cos(2 pi n / N)."""
    return _cosines(n, last, (_HAMMING, 1 - _HAMMING))


@_window
def hann(n: Tensor, last: int) -> Tensor:
    """(1 - cos(2 pi n / N)) / 2."""
    return _cosines(n, last, (0.5, 0.5))


@_window
def kaiser(n: Tensor, last: int, *, beta: float = 12.0) -> Tensor:
    """I0(beta sqrt(1 - (2 n / N - 1)^2)) / I0(beta), I0 the modified Bessel function."""
    if beta < 0:
        raise ConfigError(f"kaiser: beta must be non-negative, got: {beta} instead.")
    inside = (1 - ops.square(n * (2.0 / max(last, 1)) - 1)).clamp(min=0)
    return i0(ops.sqrt(inside) * beta) / i0(n.new_tensor(beta))


@_window
def nuttall(n: Tensor, last: int) -> Tensor:
    """Nuttall's sum of four cosines with the least sidelobes."""
    return _cosines(n, last, _NUTTALL)


__all__ = [
    "bartlett",
    "blackman",
    "cosine",
    "exponential",
    "gaussian",
    "general_cosine",
    "general_hamming",
    "hamming",
    "hann",
    "kaiser",
    "nuttall",
]
