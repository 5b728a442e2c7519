"""Fourier transforms with NumPy's arguments, over ``dt.fft``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import fft as native
from ..core.tensor import Tensor
from ..ops import api as ops
from .axes import Axis

LINES = "fft ifft rfft irfft hfft ihfft"
PLANES = "fft2 ifft2 rfft2 irfft2"
ARRAYS = "fftn ifftn rfftn irfftn"


def _checked(name: str, a: Tensor, norm: Any) -> Tensor:
    if norm not in (None, "backward", "ortho", "forward"):
        raise ValueError(
            f'fft.{name}: norm={norm!r} given; "backward", "ortho" or "forward" needed'
        )
    if name.startswith(("rfft", "ihfft")):
        if a.is_complex():
            raise ValueError(f"only real valued inputs supported for {name}")
        return a
    return a if a.is_complex() else ops.complex(a, ops.zeros_like(a))


def _line(name: str) -> Callable:
    fn = getattr(native, name)

    def run(a: Tensor, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
        if n is not None and n <= 0:
            raise ValueError(f"fft.{name}: n must be positive, got {n}")
        return fn(_checked(name, a, norm), n, axis, norm)

    return run


def _many(name: str, default: Any) -> Callable:
    fn = getattr(native, name)

    def run(a: Tensor, s: Any = None, axes: Any = default, norm: str | None = None) -> Tensor:
        return fn(_checked(name, a, norm), s, axes, norm)

    return run


FUNCTIONS: dict[str, Callable] = {
    **{name: _line(name) for name in LINES.split()},
    **{name: _many(name, (-2, -1)) for name in PLANES.split()},
    **{name: _many(name, None) for name in ARRAYS.split()},
}


def fftshift(x: Tensor, axes: Axis = None) -> Tensor:
    """The frequency 0 moved to the middle."""
    return native.fftshift(x, axes)


def ifftshift(x: Tensor, axes: Axis = None) -> Tensor:
    """The frequency 0 moved to the front."""
    return native.ifftshift(x, axes)
