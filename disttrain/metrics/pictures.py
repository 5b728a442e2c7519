"""Pictures of any layout of dimensions as (height, width, channels) of bytes."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ShapeError


def numbers(x: Any) -> np.ndarray:
    """A tensor, an array or a number as a numpy array."""
    if hasattr(x, "detach"):
        x = x.detach().cpu()
        x = x.float() if x.dtype.itemsize == 2 and x.is_floating_point() else x
        return np.asarray(x.numpy())
    return np.asarray(x)


def pixels(x: Any, dims: str) -> np.ndarray:
    """``x``, whose dimensions ``dims`` names (N, C, H, W), as one picture; a batch as a grid of up
    to 8 columns. Bytes stay; other numbers count from 0 to 1."""
    array = numbers(x)
    names = dims.upper()
    if len(set(names)) != len(names) or set(names) - set("NCHW"):
        raise ValueError(
            f"dataformats: You can not use the same dimension shordhand twice, nor others than "
            f"N, C, H and W. input_format: {dims}"
        )
    if array.ndim != len(names):
        raise ShapeError(
            f"size of input tensor and input format are different. tensor shape: {array.shape}, "
            f"input_format: {dims}"
        )
    scale = 1 if array.dtype == np.uint8 else 255
    array = np.clip(array.astype(np.float32) * scale, 0, 255).astype(np.uint8)
    if "N" in names:
        order = [names.index(k) for k in "NCHW" if k in names]
        batch = array.transpose(order)
        return _grid(batch if "C" in names else batch[:, None])
    picture = array.transpose([names.index(k) for k in "HWC" if k in names])
    return _coloured(picture if "C" in names else picture[..., None])


def _coloured(picture: np.ndarray) -> np.ndarray:
    return np.repeat(picture, 3, -1) if picture.shape[-1] == 1 else picture


def _grid(batch: np.ndarray) -> np.ndarray:
    """Pictures (count, channels, height, width) beside and beneath each other."""
    count, channels, height, width = batch.shape
    if channels == 1:
        batch, channels = np.repeat(batch, 3, 1), 3
    columns = min(count, 8) or 1
    rows = -(-count // columns)
    out = np.zeros((rows, columns, channels, height, width), batch.dtype)
    out.reshape(-1, channels, height, width)[:count] = batch
    return out.transpose(0, 3, 1, 4, 2).reshape(rows * height, columns * width, channels)


def with_boxes(
    picture: np.ndarray, boxes: np.ndarray, labels: Sequence[str] | None = None
) -> np.ndarray:
    """A copy with boxes (count, left, top, right, bottom) drawn as red lines."""
    out = picture.copy()
    height, width = out.shape[:2]
    red = np.array([255, 0, 0, 255][: out.shape[2]], np.uint8)
    for left, top, right, bottom in boxes.reshape(-1, 4).astype(int).tolist():
        x0, x1 = np.clip([left, right], 0, width - 1)
        y0, y1 = np.clip([top, bottom], 0, height - 1)
        out[[y0, y1], x0 : x1 + 1] = red
        out[y0 : y1 + 1, [x0, x1]] = red
    return out


def scaled(picture: np.ndarray, factor: float) -> np.ndarray:
    """``factor`` times as large, by the nearest pixels."""
    if factor == 1:
        return picture
    height, width = (max(1, int(n * factor)) for n in picture.shape[:2])
    rows = (np.arange(height) / factor).astype(int).clip(0, picture.shape[0] - 1)
    columns = (np.arange(width) / factor).astype(int).clip(0, picture.shape[1] - 1)
    return picture[rows][:, columns]


def drawn(figure: Any) -> np.ndarray:
    """What a figure of matplotlib looks like (height, width, 4)."""
    file = io.BytesIO()
    figure.savefig(file, format="rgba", dpi=figure.dpi)
    width, height = (int(n) for n in figure.bbox.size)
    return np.frombuffer(file.getvalue(), np.uint8).reshape(height, width, 4)
