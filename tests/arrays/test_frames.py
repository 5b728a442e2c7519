"""Signals in frames, and their spectra."""

from __future__ import annotations

import disttrain as dt
from disttrain.arrays import frames


def test_frames():
    x = dt.arange(5).float()
    assert frames.frame(x, 2, 2).tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert frames.frame(x, 2, 2, True, 9).tolist()[-1] == [4.0, 9.0]


def test_spectra():
    x = dt.randn(9)
    assert frames.stft(x, 3, 2).shape == (4, 3)
    assert dt.allclose(frames.irfft(frames.rfft(x, [8]), [8]), x[:8], atol=1e-6)
