"""Images [..., rows, columns, channels]: sizes, parts, contrasts, types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.tensor import Tensor
from ..core.types.dtypes import iinfo
from ..ops import api as ops
from . import channels_last


def resize(
    images: Tensor, sizes: Sequence[int], method: str = "bilinear", keep_ratio: bool = False,
    antialias: bool = False,
) -> Tensor:  # fmt: skip
    """One image or a batch in other sizes (``keep_ratio``: these at most, by one factor)."""
    whole = images if images.ndim == 4 else images.unsqueeze(0)
    wanted = list(sizes)
    if keep_ratio:
        factor = min(s / n for s, n in zip(wanted, whole.shape[1:3], strict=True))
        wanted = [int(n * factor + 0.5) for n in whole.shape[1:3]]
    found = channels_last.resize(whole, wanted, method, antialias)
    return found if images.ndim == 4 else found.squeeze(0)


def adjust_contrast(images: Tensor, factor: float) -> Tensor:
    """Differences from each channel's mean times ``factor``."""
    mean = ops.mean(images, dim=(-3, -2), keepdim=True)
    return (images - mean) * factor + mean


def convert_dtype(image: Tensor, kind: Any, saturate: bool = False) -> Tensor:
    """In another type, in which floating point numbers go to 1 and integers to their greatest."""
    if image.dtype.is_floating_point == kind.is_floating_point:
        return image.to(kind)
    if kind.is_floating_point:
        return image.to(kind) / iinfo(image.dtype).max
    return (image * (iinfo(kind).max + 0.5)).to(kind)


def central_crop(image: Tensor, share: float) -> Tensor:
    """The middle ``share`` of rows and columns."""
    rows, columns = image.shape[-3], image.shape[-2]
    y, x = (int((n - n * share) / 2) for n in (rows, columns))
    return image[..., y : rows - y, x : columns - x, :]


def crop_to_bounding_box(image: Tensor, top: int, left: int, rows: int, columns: int) -> Tensor:
    """``rows`` and ``columns`` from a corner on."""
    return image[..., top : top + rows, left : left + columns, :]


def rgb_to_grayscale(images: Tensor) -> Tensor:
    """The brightness of red, green and blue as the one channel."""
    weights = ops.tensor([0.2989, 0.5870, 0.1140], dtype=images.dtype)
    return (images * weights).sum(-1, keepdim=True)


def flip_left_right(images: Tensor) -> Tensor:
    """Columns the other way round."""
    return ops.flip(images, [-2])


def flip_up_down(images: Tensor) -> Tensor:
    """Rows the other way round."""
    return ops.flip(images, [-3])


def rot90(images: Tensor) -> Tensor:
    """A quarter of a turn, against the clock."""
    return ops.rot90(images, 1, [-3, -2])


def transpose(images: Tensor) -> Tensor:
    """Rows as columns."""
    return images.transpose(-3, -2).clone()


def grayscale_to_rgb(images: Tensor) -> Tensor:
    """One channel three times."""
    return images.repeat(*[1] * (images.ndim - 1), 3)
