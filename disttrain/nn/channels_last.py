"""Convolutions and pools of tensors whose channels are the last dimension: [batch, *space,
channels].

Filters are [*window, channels, filters]. ``padding``: "SAME" (as many windows as there are strides,
the odd row of padding after), "VALID" (none), or pairs for every dimension. ``layout``: channels
are the dimension after the batch instead, where it begins with NC. Strides, windows and the like
are one number, one for each dimension of space, or one for each of all. TensorFlow and Keras have
these conventions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..core.tensor import Tensor
from ..errors import ShapeError
from ..ops import api as ops
from . import functional

Sizes = int | Sequence[int]

_CONV: dict[int, Any] = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
_MAX: dict[int, Any] = {
    1: functional.max_pool1d,
    2: functional.max_pool2d,
    3: functional.max_pool3d,
}
_AVG: dict[int, Any] = {
    1: functional.avg_pool1d,
    2: functional.avg_pool2d,
    3: functional.avg_pool3d,
}


def conv(
    x: Tensor, filters: Tensor, strides: Sizes | None = 1, padding: Any = "VALID",
    layout: str | None = None, dilations: Sizes | None = 1, groups: int | None = None,
) -> Tensor:  # fmt: skip
    """The convolution over one to three dimensions; ``groups`` follows from the channels."""
    n, first = x.ndim - 2, _first(layout)
    moved = x if first else x.movedim(-1, 1)
    depth, inside = moved.shape[1], filters.shape[n]
    if groups is None:
        if depth % inside:
            raise ShapeError(
                f"input depth must be evenly divisible by filter depth: {depth} vs {inside}"
            )
        groups = depth // inside
    steps, spread = _each(strides, n, first), _each(dilations, n, first)
    window = list(filters.shape[:n])
    moved = _padded(moved, edges(moved.shape[2:], window, steps, spread, padding))
    kernel = ops.permute(filters, [n + 1, n, *(d for d, _ in enumerate(window))])
    found = _CONV[n](moved, kernel, None, tuple(steps), 0, tuple(spread), groups)
    return found if first else found.movedim(1, -1)


def depthwise_conv(
    x: Tensor, filters: Tensor, strides: Sizes = 1, padding: Any = "VALID",
    layout: str | None = None, dilations: Sizes | None = 1,
) -> Tensor:  # fmt: skip
    """Each channel by filters of its own: ``filters`` is [rows, columns, channels, several]."""
    rows, columns, depth, several = filters.shape
    kernel = filters.reshape(rows, columns, 1, depth * several)
    return conv(x, kernel, strides, padding, layout, dilations, depth)


def separable_conv(
    x: Tensor, depthwise: Tensor, pointwise: Tensor, strides: Sizes = 1, padding: Any = "VALID",
    layout: str | None = None, dilations: Sizes | None = 1,
) -> Tensor:  # fmt: skip
    """``depthwise_conv``, and then a convolution of single points."""
    found = depthwise_conv(x, depthwise, strides, padding, layout, dilations)
    return conv(found, pointwise, layout=layout)


def conv_transpose(
    x: Tensor, filters: Tensor, sizes: Sequence[int], strides: Sizes = 1, padding: Any = "SAME",
    layout: str | None = None, dilations: Sizes | None = 1,
) -> Tensor:  # fmt: skip
    """The gradient of a convolution over two dimensions that makes ``x`` of what is [*sizes]."""
    first = _first(layout)
    moved, sizes = x if first else x.movedim(-1, 1), _each(sizes, 2, first)
    steps, spread = _each(strides, 2, first), _each(dilations, 2, first)
    window = list(filters.shape[:2])
    around = edges(sizes, window, steps, spread, padding)
    kernel = ops.permute(filters, [3, 2, 0, 1])
    found = functional.conv_transpose2d(moved, kernel, None, tuple(steps), 0, 0, 1, tuple(spread))
    for d, ((before, _), n) in enumerate(zip(around, sizes, strict=True), 2):
        short = before + n - found.shape[d]
        if short > 0:
            found = functional.pad(found, [0, 0] * (3 - d) + [0, short])
        found = found.narrow(d, before, n)
    return found if first else found.movedim(1, -1)


def max_pool(
    x: Tensor, window: Sizes, strides: Sizes, padding: Any = "VALID", layout: str | None = None
) -> Tensor:
    """The largest number of each window."""
    return _pooled(x, window, strides, padding, _first(layout), True)


def avg_pool(
    x: Tensor, window: Sizes, strides: Sizes, padding: Any = "VALID", layout: str | None = None
) -> Tensor:
    """The mean of each window, of what is not padding."""
    return _pooled(x, window, strides, padding, _first(layout), False)


def _pooled(
    x: Tensor, window: Sizes, strides: Sizes, padding: Any, first: bool, largest: bool
) -> Tensor:
    n = x.ndim - 2
    moved = x if first else x.movedim(-1, 1)
    sizes, steps = tuple(_each(window, n, first)), tuple(_each(strides, n, first))
    around = edges(moved.shape[2:], list(sizes), list(steps), [1] * n, padding)
    if largest:
        found = _MAX[n](_padded(moved, around, float("-inf")), sizes, steps)
    else:
        padded = any(map(any, around))
        sums: dict[str, Any] = {"divisor_override": 1} if padded and n > 1 else {}
        found = _AVG[n](_padded(moved, around), sizes, steps, **sums)
        if padded:
            ones = _padded(ops.ones_like(moved[:1, :1].detach()), around)
            found = found / _AVG[n](ones, sizes, steps, **sums)
    return found if first else found.movedim(1, -1)


def edges(
    sizes: Sequence[int], window: list[int], strides: list[int], dilations: list[int], padding: Any
) -> list[tuple[int, int]]:
    """How much is padded before and after each dimension."""
    if not isinstance(padding, str):
        return [tuple(p) for p in padding][1:-1]
    word = padding.upper()
    if word not in ("SAME", "VALID"):
        raise ValueError(f"padding={padding!r}: not in the list of allowed values: 'SAME', 'VALID'")
    if word == "VALID":
        return [(0, 0)] * len(window)
    out = []
    for n, k, s, d in zip(sizes, window, strides, dilations, strict=True):
        total = max((math.ceil(n / s) - 1) * s + (k - 1) * d + 1 - n, 0)
        out.append((total // 2, total - total // 2))
    return out


def _first(layout: str | None) -> bool:
    return bool(layout) and layout.startswith("NC")  # type: ignore[union-attr]


def _each(value: Sizes | None, n: int, first: bool) -> list[int]:
    """One for each of ``n`` dimensions of space."""
    found = [value] if isinstance(value, int) else list(value or [1])
    if len(found) == n + 2:
        return found[2:] if first else found[1:-1]
    return found * n if len(found) == 1 else found


def _padded(x: Tensor, around: list[tuple[int, int]], value: float = 0.0) -> Tensor:
    flat = [n for pair in reversed(around) for n in pair]
    return functional.pad(x, flat, value=value) if any(flat) else x


def space_to_depth(x: Tensor, block: int) -> Tensor:
    """Squares of ``block`` by ``block`` as channels."""
    b, h, w, c = x.shape
    parts = x.reshape(b, h // block, block, w // block, block, c)
    return ops.permute(parts, [0, 1, 3, 2, 4, 5]).reshape(b, h // block, w // block, -1)


def depth_to_space(x: Tensor, block: int) -> Tensor:
    """Channels as squares of ``block`` by ``block``."""
    b, h, w, c = x.shape
    parts = x.reshape(b, h, w, block, block, c // block**2)
    return ops.permute(parts, [0, 1, 3, 2, 4, 5]).reshape(b, h * block, w * block, -1)


def local_response_norm(
    x: Tensor, radius: int = 5, bias: float = 1, alpha: float = 1, beta: float = 0.5
) -> Tensor:
    """``x`` over a power of the squares of the channels within ``radius``."""
    squares = functional.pad(x * x, [radius, radius])
    total = squares.unfold(-1, 2 * radius + 1, 1).sum(-1)
    return x / (bias + alpha * total) ** beta


def resize(
    images: Tensor, sizes: Sequence[int], method: str = "bilinear", antialias: bool = False
) -> Tensor:
    """``images`` [batch, rows, columns, channels] in other sizes; "bilinear", "nearest", "area",
    by the centres of pixels."""
    words = {"bilinear": "bilinear", "nearest": "nearest-exact", "area": "area"}
    if method not in words:
        raise ValueError(f"Resize method is not implemented: {method!r}")
    moved = images.movedim(-1, 1)
    moved = moved if method == "nearest" else moved.float()
    smooth: dict[str, Any] = {"antialias": True} if antialias and method == "bilinear" else {}
    return functional.interpolate(moved, list(sizes), mode=words[method], **smooth).movedim(1, -1)
