"""Convolutions in one to three dimensions, their adjoints, and unfold / fold.

Everything comes down to ``ops.conv2d``: one dimension is two with a height of 1, three are a sum
of two over the kernel's depth, a transposed one is a convolution of the input with zeros between.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ops
from ...core import Tensor, wrap
from ...errors import ConfigError, ShapeError
from .common import need_dims, per_dim

_LAYOUT = {1: "(N, C, L) or (C, L)", 2: "(N, C, H, W) or (C, H, W)", 3: "(N, C, D, H, W)"}


def conv1d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Convolution of (N, C, L) with weights (O, C / groups, K).

    ``padding``: numbers, "valid" (none) or "same" (the output has the input's size).
    """
    return _conv(1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Convolution of (N, C, H, W) with weights (O, C / groups, KH, KW)"""
    return _conv(2, input, weight, bias, stride, padding, dilation, groups)


def conv3d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Convolution of (N, C, D, H, W) with weights (O, C / groups, KD, KH, KW)"""
    return _conv(3, input, weight, bias, stride, padding, dilation, groups)


def _conv(
    n: int, input: Tensor, weight: Tensor, bias: Any, stride: Any, padding: Any, dilation: Any,
    groups: int,
) -> Tensor:  # fmt: skip
    where = f"conv{n}d"
    need_dims(where, input, (n + 1, n + 2), _LAYOUT[n])
    if input.ndim == n + 1:
        out = _conv(n, input.unsqueeze(0), weight, bias, stride, padding, dilation, groups)
        return out.squeeze(0)
    stride = per_dim(stride, n, where, "stride")
    dilation = per_dim(dilation, n, where, "dilation")
    _check(where, input, weight, bias, groups, weight.shape[1] * groups)
    if isinstance(padding, str):
        input, padding = _named_padding(where, input, weight, padding, stride, dilation)
    else:
        padding = per_dim(padding, n, where, "padding")
    _check_size(where, input, weight, padding, dilation)
    if n == 2:
        return ops.conv2d(input, weight, bias, stride, padding, dilation, groups)
    if n == 1:
        flat = ops.conv2d(
            input.unsqueeze(2), weight.unsqueeze(2), bias, (1, *stride), (0, *padding),
            (1, *dilation), groups,
        )  # fmt: skip
        return flat.squeeze(2)
    return _conv3d(input, weight, bias, stride, padding, dilation, groups)


def _check(
    where: str, input: Tensor, weight: Tensor, bias: Any, groups: int, channels: int
) -> None:
    if weight.ndim != input.ndim:
        raise ShapeError(
            f"{where}: weight of shape {list(weight.shape)} given for an input of shape "
            f"{list(input.shape)}; both need {input.ndim} dimensions"
        )
    if groups < 1 or weight.shape[0] % groups:
        raise ConfigError(
            f"{where}: groups={groups} given; it must divide weight.shape[0]={weight.shape[0]}"
        )
    if input.shape[1] != channels:
        raise ShapeError(
            f"{where}: input of shape {list(input.shape)} has {input.shape[1]} channels; needed "
            f"{channels}, because the weight has shape {list(weight.shape)} and groups={groups}"
        )


def _check_size(where: str, input: Tensor, weight: Tensor, padding: tuple, dilation: tuple) -> None:
    for size, k, pad, step in zip(
        input.shape[2:], weight.shape[2:], padding, dilation, strict=True
    ):
        if size + 2 * pad < step * (k - 1) + 1:
            raise ShapeError(
                f"{where}: input of shape {list(input.shape)} with padding {padding} is smaller "
                f"than the kernel {list(weight.shape[2:])} with dilation {dilation}; needed an "
                "input at least as large as the kernel"
            )


def _named_padding(
    where: str, input: Tensor, weight: Tensor, name: str, stride: tuple, dilation: tuple
) -> tuple[Tensor, tuple]:
    """The padding that "valid" or "same" means, and the input padded where it is lopsided."""
    n = len(stride)
    if name == "valid":
        return input, (0,) * n
    if name != "same":
        raise ConfigError(f"{where}: padding={name!r} given; needed numbers, 'valid' or 'same'")
    if any(s != 1 for s in stride):
        raise ConfigError(f"{where}: padding='same' is not defined for stride {stride}; needed 1")
    total = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
    if any(t % 2 for t in total):
        extra: list[int] = []
        for t in reversed(total):
            extra += [0, t % 2]
        input = ops.pad(input, extra)
    return input, tuple(t // 2 for t in total)


def _conv3d(
    input: Tensor, weight: Tensor, bias: Any, stride: tuple, padding: tuple, dilation: tuple,
    groups: int,
) -> Tensor:  # fmt: skip
    """A sum over the kernel's depth of 2-d convolutions of depth slices."""
    if padding[0]:
        input = ops.pad(input, (0, 0, 0, 0, padding[0], padding[0]))
    n, c, depth, h, w = input.shape
    taps = weight.shape[2]
    out_depth = (depth - dilation[0] * (taps - 1) - 1) // stride[0] + 1
    total = None
    for k in range(taps):
        first = k * dilation[0]
        planes = input[:, :, first : first + (out_depth - 1) * stride[0] + 1 : stride[0]]
        planes = planes.transpose(1, 2).reshape(n * out_depth, c, h, w)
        part = ops.conv2d(
            planes, weight[:, :, k], bias if k == 0 else None, stride[1:], padding[1:],
            dilation[1:], groups,
        )  # fmt: skip
        total = part if total is None else total + part
    assert total is not None
    return total.reshape(n, out_depth, *total.shape[1:]).transpose(1, 2)


# --- transposed -------------------------------------------------------------------------------
def conv_transpose1d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
) -> Tensor:  # fmt: skip
    """The adjoint of ``conv1d``: (N, C, L) with weights (C, O / groups, K)"""
    return _transposed(1, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
) -> Tensor:  # fmt: skip
    """The adjoint of ``conv2d``: (N, C, H, W) with weights (C, O / groups, KH, KW)"""
    return _transposed(2, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose3d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
) -> Tensor:  # fmt: skip
    """The adjoint of ``conv3d``: (N, C, D, H, W) with weights (C, O / groups, KD, KH, KW)"""
    return _transposed(3, input, weight, bias, stride, padding, output_padding, groups, dilation)


def _transposed(
    n: int, input: Tensor, weight: Tensor, bias: Any, stride: Any, padding: Any,
    output_padding: Any, groups: int, dilation: Any,
) -> Tensor:  # fmt: skip
    where = f"conv_transpose{n}d"
    need_dims(where, input, (n + 1, n + 2), _LAYOUT[n])
    if input.ndim == n + 1:
        out = _transposed(
            n, input.unsqueeze(0), weight, bias, stride, padding, output_padding, groups, dilation
        )
        return out.squeeze(0)
    stride = per_dim(stride, n, where, "stride")
    padding = per_dim(padding, n, where, "padding")
    extra = per_dim(output_padding, n, where, "output_padding")
    dilation = per_dim(dilation, n, where, "dilation")
    _check(where, input, weight, bias, groups, weight.shape[0])
    for e, s, d in zip(extra, stride, dilation, strict=True):
        if e >= max(s, d):
            raise ConfigError(
                f"{where}: output_padding={extra} given; it must be smaller than stride={stride} "
                f"or dilation={dilation}"
            )
    spread = _spread(input, stride)
    pads: list[int] = []
    for k, p, e, d in reversed(list(zip(weight.shape[2:], padding, extra, dilation, strict=True))):
        pads += [d * (k - 1) - p, d * (k - 1) - p + e]
    spread = _pad_or_crop(spread, pads)
    _check_size(where, spread, weight, (0,) * n, dilation)
    return _conv(n, spread, _adjoint(weight, groups), bias, 1, 0, dilation, groups)


def _spread(input: Tensor, stride: tuple) -> Tensor:
    """``input`` with ``stride - 1`` zeros between neighbours."""
    if all(s == 1 for s in stride):
        return input
    shape = list(input.shape)
    split, pads = shape[:2], []
    for size in shape[2:]:
        split += [size, 1]
    for s in reversed(stride):
        pads += [0, s - 1, 0, 0]
    out = ops.pad(input.reshape(split), pads)
    out = out.reshape(shape[:2] + [size * s for size, s in zip(shape[2:], stride, strict=True)])
    keep = [slice(0, (size - 1) * s + 1) for size, s in zip(shape[2:], stride, strict=True)]
    return out[(slice(None), slice(None), *keep)]


def _pad_or_crop(x: Tensor, pads: list[int]) -> Tensor:
    """Pad where positive, crop where negative; pairs from the last dimension on."""
    index = [slice(None)] * x.ndim
    for i in range(len(pads) // 2):
        low, high = pads[2 * i], pads[2 * i + 1]
        if low < 0 or high < 0:
            index[-1 - i] = slice(max(-low, 0), x.shape[-1 - i] - max(-high, 0))
    if any(i != slice(None) for i in index):
        x = x[tuple(index)]
    grow = [max(p, 0) for p in pads]
    return ops.pad(x, grow) if any(grow) else x


def _adjoint(weight: Tensor, groups: int) -> Tensor:
    """Weights (C, O / groups, ...) as those of the convolution that does the same, flipped."""
    spatial = tuple(weight.shape[2:])
    c, o = weight.shape[:2]
    w = weight.reshape(groups, c // groups, o, *spatial).transpose(1, 2)
    w = w.reshape(groups * o, c // groups, *spatial)
    return ops.flip(w, tuple(range(2, w.ndim)))


# --- unfold, fold -----------------------------------------------------------------------------
def _windows(size: int, k: int, stride: int, padding: int, dilation: int) -> np.ndarray:
    """Row i: the padded positions that tap i of the kernel visits."""
    count = (size + 2 * padding - dilation * (k - 1) - 1) // stride + 1
    if count < 1:
        raise ShapeError(
            f"unfold: a size of {size} with padding {padding} is smaller than the kernel {k} with "
            f"dilation {dilation}"
        )
    return np.arange(k)[:, None] * dilation + np.arange(count)[None, :] * stride


def _grid(size: tuple, kernel: tuple, dilation: tuple, padding: tuple, stride: tuple) -> tuple:
    rows, cols = (
        _windows(size[i], kernel[i], stride[i], padding[i], dilation[i]) for i in range(2)
    )
    return rows[:, None, :, None], cols[None, :, None, :]


def unfold(
    input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Tensor:
    """Windows as columns: (N, C, H, W) to (N, C KH KW, L)"""
    need_dims("unfold", input, (3, 4), _LAYOUT[2])
    if input.ndim == 3:
        return unfold(input.unsqueeze(0), kernel_size, dilation, padding, stride).squeeze(0)
    kernel, dilation, padding, stride = (
        per_dim(v, 2, "unfold", name)
        for v, name in zip(
            (kernel_size, dilation, padding, stride),
            ("kernel_size", "dilation", "padding", "stride"),
            strict=True,
        )
    )
    n, c, h, w = input.shape
    rows, cols = _grid((h, w), kernel, dilation, padding, stride)
    if any(padding):
        input = ops.pad(input, (padding[1], padding[1], padding[0], padding[0]))
    out = input[:, :, wrap(rows), wrap(cols)]
    return out.reshape(n, c * kernel[0] * kernel[1], -1)


def fold(
    input: Tensor, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0,
    stride: Any = 1,
) -> Tensor:  # fmt: skip
    """The adjoint of ``unfold``: columns (N, C KH KW, L) summed into (N, C, H, W)"""
    need_dims("fold", input, (2, 3), "(N, C KH KW, L) or (C KH KW, L)")
    if input.ndim == 2:
        return fold(input.unsqueeze(0), output_size, kernel_size, dilation, padding, stride)[0]
    h, w = per_dim(output_size, 2, "fold", "output_size")
    kernel = per_dim(kernel_size, 2, "fold", "kernel_size")
    dilation = per_dim(dilation, 2, "fold", "dilation")
    padding = per_dim(padding, 2, "fold", "padding")
    stride = per_dim(stride, 2, "fold", "stride")
    taps = kernel[0] * kernel[1]
    n, ck, length = input.shape
    rows, cols = _grid((h, w), kernel, dilation, padding, stride)
    width = w + 2 * padding[1]
    places = (rows * width + cols).reshape(-1)
    if ck % taps or places.size != taps * length:
        raise ShapeError(
            f"fold: input of shape {list(input.shape)} given; for output_size {(h, w)} and kernel "
            f"{kernel} needed (N, C * {taps}, {places.size // taps})"
        )
    c, height = ck // taps, h + 2 * padding[0]
    flat = ops.zeros(n, c, height * width, dtype=input.dtype, device=input.device)
    flat = ops.index_add(flat, 2, wrap(places), input.reshape(n, c, taps * length))
    out = flat.reshape(n, c, height, width)
    return out[:, :, padding[0] : padding[0] + h, padding[1] : padding[1] + w]
