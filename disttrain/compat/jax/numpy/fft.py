"""``jax.numpy.fft``: a table over ``disttrain.fft``, with NumPy's names of arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .... import fft as native
from .. import types
from .lifting import given_back, one

_LINES = "fft ifft rfft irfft hfft ihfft"
_PLANES = "fft2 ifft2 rfft2 irfft2"
_ARRAYS = "fftn ifftn rfftn irfftn"
NORMS = (None, "backward", "ortho", "forward")


def _checked(name: str, norm: Any) -> None:
    if norm not in NORMS:
        raise ValueError(
            f'jax.numpy.fft.{name}: norm={norm!r} given; "backward", "ortho" or "forward" needed'
        )


def _type(name: str) -> Callable:
    return types.floating if name.startswith(("rfft", "ihfft")) else types.complexed


def _line(name: str) -> Callable:
    fn = getattr(native, name)

    def run(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
        _checked(name, norm)
        if n is not None and n <= 0:
            raise ValueError(f"jax.numpy.fft.{name}: n must be positive, got {n}")
        return given_back(fn(one(name, a, _type(name)), n, axis, norm), False, a)

    return run


def _many(name: str, axes: Any) -> Callable:
    fn, default = getattr(native, name), axes

    def run(a: Any, s: Any = None, axes: Any = default, norm: str | None = None) -> Any:
        _checked(name, norm)
        return given_back(fn(one(name, a, _type(name)), s, axes, norm), False, a)

    return run


def _shift(name: str) -> Callable:
    fn = getattr(native, name)

    def run(x: Any, axes: Any = None) -> Any:
        return given_back(fn(one(name, x), axes), False, x)

    return run


def _frequencies(name: str) -> Callable:
    fn = getattr(native, name)

    def run(n: int, d: Any = 1.0, *, dtype: Any = None, device: Any = None) -> Any:
        kind = types.canonical("float64") if dtype is None else types.asked(dtype, name)
        step = one(name, d, lambda _: kind)
        return given_back(fn(n, dtype=types.dtypes.of(kind)) / step, False, d)

    return run


NAMES: dict[str, Callable] = {
    **{name: _line(name) for name in _LINES.split()},
    **{name: _many(name, (-2, -1)) for name in _PLANES.split()},
    **{name: _many(name, None) for name in _ARRAYS.split()},
    **{name: _shift(name) for name in ("fftshift", "ifftshift")},
    **{name: _frequencies(name) for name in ("fftfreq", "rfftfreq")},
}
for _name, _fn in NAMES.items():
    _fn.__name__ = _name
globals().update(NAMES)
__all__ = sorted(NAMES)
