"""Fourier transforms, windows, and the weights of mel spectrograms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .... import fft
from ....core.tensor import Tensor
from ....ops import api
from ..elements import held_in
from ..numbers import Numbers
from ..table import operator
from .elementwise import check_count
from .reductions import whole


def _complex(x: Tensor) -> Tensor:
    """The last dimension of one or two numbers as one complex number."""
    if x.shape[-1] == 1:
        return x.squeeze(-1)
    return api.view_as_complex(x.contiguous())


@operator("DFT", numbers=(1, 2))
def _dft(
    x: Tensor, dft_length: Any = None, axis: Any = None, *, inverse: int = 0, onesided: int = 0,
    node: Any,
) -> Tensor:  # fmt: skip
    along = whole(axis, 1 if node.version < 20 else -2)
    along = along + x.ndim if along < 0 else along
    n = whole(dft_length)
    check_count(n, 1 << 28)
    given = _complex(x)
    if onesided and inverse:
        size = n if n is not None else 2 * (x.shape[along] - 1)
        return fft.irfft(given, size, along).unsqueeze(-1)
    if inverse:
        out = fft.ifft(given, n, along)
    elif onesided:
        out = fft.rfft(given if not given.dtype.is_complex else given.real, n, along)
    else:
        out = fft.fft(given, n, along)
    return api.view_as_real(out)


@operator("STFT", numbers=(1, 3))
def _stft(
    x: Tensor, frame_step: Any, window: Tensor | None = None, frame_length: Any = None, *,
    onesided: int = 1,
) -> Tensor:  # fmt: skip
    step = whole(frame_step)
    size = whole(frame_length, None if window is None else window.shape[0])
    given = _complex(x) if x.ndim == 3 else x
    frames = given.unfold(1, size, step)
    if window is not None:
        frames = frames * window
    if onesided and not frames.dtype.is_complex:
        return api.view_as_real(fft.rfft(frames, size, -1))
    return api.view_as_real(fft.fft(frames, size, -1))


def _window(*terms: float) -> Any:
    def run(size: Numbers, *, output_datatype: int = 1, periodic: int = 1) -> Tensor:
        n = size.one()
        check_count(n, 1 << 28)
        over = n if periodic else n - 1
        t = np.arange(n) * (2 * math.pi / over)
        total = sum((-1) ** i * a * np.cos(i * t) for i, a in enumerate(terms))
        return api.tensor(total).to(held_in(output_datatype))

    return run


operator("HannWindow", numbers=(0,))(_window(0.5, 0.5))
operator("HammingWindow", numbers=(0,))(_window(25 / 46, 21 / 46))
operator("BlackmanWindow", numbers=(0,))(_window(0.42, 0.5, 0.08))


def _hertz(mel: np.ndarray) -> np.ndarray:
    return 700.0 * (10.0 ** (mel / 2595.0) - 1.0)


def _mel(hertz: float) -> float:
    return 2595.0 * math.log10(1.0 + hertz / 700.0)


@operator("MelWeightMatrix", numbers=(0, 1, 2, 3, 4))
def _mel_weights(
    bands: Any, length: Any, rate: Any, lower: Any, upper: Any, *, output_datatype: int = 1
) -> Tensor:
    """Triangles on the mel scale, a column each."""
    count, n = bands.one(), length.one()
    check_count(count * n, 1 << 24)
    step = (_mel(upper.one()) - _mel(lower.one())) / (count + 2)
    edges = _mel(lower.one()) + step * np.arange(count + 2)
    bins = np.floor((n + 1) * _hertz(edges) / rate.one()).astype(int)
    out = np.zeros((n // 2 + 1, count))
    for j in range(count):
        low, centre, high = bins[j : j + 3]
        if centre == low:
            out[centre, j] = 1
        for i in range(low, centre + 1):
            if centre != low:
                out[i, j] = (i - low) / (centre - low)
        for i in range(centre, high):
            out[i, j] = (high - i) / (high - centre)
    return api.tensor(out.astype(np.float32)).to(held_in(output_datatype))
