"""Discrete Fourier transforms over the dimensions ``dims``, by numpy's pocketfft.

    fft(a; dims, inverse, norm)       complex to complex
    rfft(a; dims, norm)               real to the first half of the last one of ``dims``
    irfft(a; dims, size, norm)        back from such a half to ``size`` real numbers

All are linear, so the adjoint of one is another: that in the other direction with the other share
of the scale (``norm``: "backward", "ortho" or "forward", the direction that divides by the number
of points). A half of a Hermitian spectrum stands for two elements but at its ends.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.annotations import Shaped, Value
from ...core.gate import Primitive
from ..declare import primitive
from .batching import made_like
from .views import Batched, up

OTHER = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


def _parts_of(kind: np.dtype) -> np.dtype:
    return np.dtype(f"f{kind.itemsize // 2}")


def _whole(a: np.ndarray) -> None:
    if a.dtype.char not in "fdFD":
        raise TypeError(f"Unsupported dtype {a.dtype}")


def _fft(a: np.ndarray, dims: tuple, inverse: bool, norm: str) -> Any:
    _whole(a)
    return (np.fft.ifftn if inverse else np.fft.fftn)(a, axes=dims, norm=norm)  # type: ignore[arg-type]


def _complex_samples(params: dict) -> Any:
    def samples(rng: np.random.Generator) -> list:
        shapes = ((4,), (0,)), ((2, 3, 4), (0, 2)), ((3, 5), (1,))
        return [
            ((rng.normal(size=s) + 1j * rng.normal(size=s),), {**params, "dims": dims})
            for s, dims in shapes
        ]

    return samples


fft: Primitive = primitive(
    "fft", _fft, "a",
    vjp={
        "a": lambda g, dims, inverse, norm: fft(
            g, dims=dims, inverse=not inverse, norm=OTHER[norm]
        )
    },
    jvp="linear", shape=lambda a, dims, inverse, norm: (a.shape, a.dtype),
    samples=_complex_samples({"inverse": False, "norm": "backward"}),
    batch=Batched(lambda: fft, up("dims")),
)  # fmt: skip


def _weighted(x: Value, dim: int, size: int, middle: float) -> Any:
    """``x`` with all but the ends of its half spectrum of ``size`` points times ``middle``."""
    count = x.shape[dim]
    kind = _parts_of(x.dtype if isinstance(x, np.ndarray) else x.meta()[1])  # type: ignore[attr-defined]

    def weights(xp: Any) -> Any:
        out = xp.full(count, middle, kind)
        out[:1] = 1
        if size % 2 == 0:
            out[size // 2 : size // 2 + 1] = 1
        return out.reshape(-1, *(1,) * (len(x.shape) - dim - 1))

    return x * made_like(x, weights)


def _rfft(a: np.ndarray, dims: tuple, norm: str) -> Any:
    _whole(a)
    return np.fft.rfftn(a, axes=dims, norm=norm)  # type: ignore[arg-type]


def _rfft_shape(a: Shaped, dims: tuple, norm: str) -> tuple:
    shape = list(a.shape)
    shape[dims[-1]] = shape[dims[-1]] // 2 + 1
    return tuple(shape), np.dtype(f"c{a.dtype.itemsize * 2}")


def _rfft_rule(g: Value, dims: tuple, norm: str, a_shape: tuple) -> Any:
    size = a_shape[dims[-1]]
    g = _weighted(g, dims[-1], size, 0.5)
    return irfft(g, dims=dims, size=size, norm=OTHER[norm])


rfft: Primitive = primitive(
    "rfft", _rfft, "a", vjp={"a": _rfft_rule}, jvp="linear", shape=_rfft_shape,
    samples=lambda rng: [
        ((rng.normal(size=(4,)),), {"dims": (0,), "norm": "backward"}),
        ((rng.normal(size=(2, 3, 4)),), {"dims": (0, 1), "norm": "ortho"}),
    ],
    batch=Batched(lambda: rfft, up("dims")),
)  # fmt: skip


def _irfft(a: np.ndarray, dims: tuple, size: int, norm: str) -> Any:
    _whole(a)
    sizes = [*(a.shape[d] for d in dims[:-1]), size]
    return np.fft.irfftn(a, sizes, dims, norm)  # type: ignore[arg-type]


def _irfft_shape(a: Shaped, dims: tuple, size: int, norm: str) -> tuple:
    shape = list(a.shape)
    shape[dims[-1]] = size
    return tuple(shape), _parts_of(a.dtype)


def _irfft_rule(g: Value, dims: tuple, size: int, norm: str) -> Any:
    return _weighted(rfft(g, dims=dims, norm=OTHER[norm]), dims[-1], size, 2.0)


irfft: Primitive = primitive(
    "irfft", _irfft, "a", vjp={"a": _irfft_rule}, jvp="linear", shape=_irfft_shape,
    samples=lambda rng: [
        ((x + 1j * rng.normal(size=x.shape),), {"dims": dims, "size": size, "norm": "forward"})
        for x, dims, size in (
            (rng.normal(size=(3,)), (0,), 4), (rng.normal(size=(2, 3, 2)), (2, 1), 5),
        )
    ],
    batch=Batched(lambda: irfft, up("dims")),
)  # fmt: skip
