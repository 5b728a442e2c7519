"""Signals in overlapping frames, and their spectra."""

from __future__ import annotations

from typing import Any

from ..core.tensor import Tensor
from ..fft import irfft as _irfft
from ..fft import rfft as _rfft
from ..ops import api as ops
from ..ops.functions.spectral.windows import hann_window


def frame(
    signal: Tensor, length: int, step: int, pad_end: bool = False, value: float = 0
) -> Tensor:
    """Frames of ``length`` every ``step``; ``pad_end``: the last ones filled up with ``value``."""
    if pad_end:
        n = signal.shape[-1]
        short = max(0, length + step * (-(-n // step) - 1) - n)
        signal = ops.pad(signal, [0, short], value=value)
    return signal.unfold(-1, length, step).clone()


def stft(
    signals: Tensor, length: int, step: int, size: int | None = None, pad_end: bool = False
) -> Tensor:
    """Spectra of frames under Hann's window; ``size``: of the transform, a power of two by
    default."""
    frames = frame(signals, length, step, pad_end) * hann_window(length)
    return _rfft(frames, size or 1 << (length - 1).bit_length())


def _last(size: Any) -> Any:
    return size[-1] if isinstance(size, (list, tuple)) else size


def rfft(x: Tensor, size: Any = None) -> Tensor:
    """The spectrum of the last dimension; ``size`` may be the one of a list."""
    return _rfft(x, _last(size))


def irfft(x: Tensor, size: Any = None) -> Tensor:
    """The other way round."""
    return _irfft(x, _last(size))
