"""Images: sizes, parts, contrasts, types."""

from __future__ import annotations

import disttrain as dt
from disttrain.nn import images

X = dt.arange(48).reshape(4, 4, 3).float()


def test_sizes_and_parts():
    assert images.resize(X, [2, 2]).shape == (2, 2, 3)
    assert images.resize(X.unsqueeze(0), [2, 8], keep_ratio=True).shape == (1, 2, 2, 3)
    assert images.central_crop(X, 0.5).tolist() == X[1:3, 1:3].tolist()
    assert images.crop(X, 1, 2, 3, 2).tolist() == X[1:4, 2:4].tolist()


def test_contrasts_and_types():
    assert dt.allclose(images.adjust_contrast(X, 2.0).mean((0, 1)), X.mean((0, 1)))
    assert images.gray(dt.ones(1, 1, 3)).item() > 0.999
    bright = images.converted(dt.tensor([255], dtype=dt.uint8), dt.float32)
    assert bright.tolist() == [1.0]
    assert images.converted(bright, dt.uint8).tolist() == [255]
    assert images.converted(bright, dt.float64).dtype is dt.float64
