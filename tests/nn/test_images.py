"""Images: sizes, parts, contrasts, types."""

from __future__ import annotations

import disttrain as dt
from disttrain.nn import images

X = dt.arange(48).reshape(4, 4, 3).float()


def test_sizes_and_parts():
    assert images.resize(X, [2, 2]).shape == (2, 2, 3)
    assert images.resize(X.unsqueeze(0), [2, 8], keep_ratio=True).shape == (1, 2, 2, 3)
    assert images.central_crop(X, 0.5).tolist() == X[1:3, 1:3].tolist()
    assert images.crop_to_bounding_box(X, 1, 2, 3, 2).tolist() == X[1:4, 2:4].tolist()


def test_contrasts_and_types():
    assert dt.allclose(images.adjust_contrast(X, 2.0).mean((0, 1)), X.mean((0, 1)))
    assert images.rgb_to_grayscale(dt.ones(1, 1, 3)).item() > 0.999
    bright = images.convert_dtype(dt.tensor([255], dtype=dt.uint8), dt.float32)
    assert bright.tolist() == [1.0]
    assert images.convert_dtype(bright, dt.uint8).tolist() == [255]
    assert images.convert_dtype(bright, dt.float64).dtype is dt.float64


def test_turns():
    whole = X.numpy()
    assert (images.flip_left_right(X).numpy() == whole[:, ::-1]).all()
    assert (images.flip_up_down(X).numpy() == whole[::-1]).all()
    assert dt.equal(images.rot90(images.rot90(X)), images.flip_up_down(images.flip_left_right(X)))
    assert (images.transpose(X).numpy() == whole.transpose(1, 0, 2)).all()
    assert images.grayscale_to_rgb(X[..., :1]).shape == X.shape
