"""In which order the elements of a tensor lie in memory. Knows shapes and strides, no tensor.

A format is an order of dimensions, the one whose neighbours lie furthest apart first; memory is
dense in it. ``preserve_format`` stands for the order that the input has.
"""

from __future__ import annotations

import math

from ...errors import ConfigError, ShapeError


class memory_format:  # noqa: N801  (the field's spelling)
    """``contiguous_format``, ``channels_last``, ``channels_last_3d`` or ``preserve_format``."""

    namespace = "disttrain"  # how formats print

    __slots__ = ("name", "order")

    def __init__(self, name: str, order: tuple[int, ...] | None = None) -> None:
        self.name, self.order = name, order

    def __repr__(self) -> str:
        return f"{memory_format.namespace}.{self.name}"

    def __reduce__(self) -> str:
        return self.name


contiguous_format = memory_format("contiguous_format")
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last", (0, 2, 3, 1))
channels_last_3d = memory_format("channels_last_3d", (0, 2, 3, 4, 1))
_ALL = (contiguous_format, preserve_format, channels_last, channels_last_3d)


def as_format(where: str, given: memory_format | None, default: memory_format) -> memory_format:
    """``given`` as a format; ``default`` for None."""
    if given is None:
        return default
    if not isinstance(given, memory_format):
        raise TypeError(f"{where}: memory_format={given!r} given; needed one of {_ALL}")
    return given


def order_of(where: str, layout: memory_format, ndim: int) -> tuple[int, ...]:
    """The order of the dimensions of a tensor of ``ndim`` in a format that names one."""
    if layout is preserve_format:
        raise ConfigError(f"{where}: preserve_format names no order of its own; needed another one")
    if layout.order is None:
        return tuple(range(ndim))
    if len(layout.order) != ndim:
        raise ShapeError(
            f"{where}: required rank {len(layout.order)} tensor to use {layout.name} format; one "
            f"of {ndim} dimensions given"
        )
    return layout.order


def is_dense(shape: tuple, strides: tuple, order: tuple[int, ...]) -> bool:
    """Whether memory laid out by ``strides`` (in elements) is dense in this order."""
    expected = 1
    for d in reversed(order):
        if shape[d] != 1:
            if strides[d] != expected:
                return False
            expected *= shape[d]
    return True


def inferred(shape: tuple, strides: tuple) -> tuple[int, ...]:
    """The order of dimensions by their strides, the largest first. What is repeated (stride 0)
    says nothing of its place: it stays where it is among its neighbours, as in PyTorch."""
    order = list(range(len(shape)))
    for i in reversed(range(len(order) - 1)):
        at = i
        for other in range(i + 1, len(order)):
            compared = _compared(shape, strides, order[at], order[other])
            if compared < 0:
                break
            if compared > 0:
                order[at], order[other] = order[other], order[at]
                at = other
    return tuple(order)


def _compared(shape: tuple, strides: tuple, outer: int, inner: int) -> int:
    """Above 0 where ``inner`` belongs outside, below 0 where both are in order, 0: unknown."""
    if not strides[outer] or not strides[inner]:
        return 0
    if strides[outer] != strides[inner]:
        return 1 if strides[inner] > strides[outer] else -1
    return 1 if shape[inner] > shape[outer] else 0


def suggested(shape: tuple, strides: tuple) -> memory_format:
    """The format that a tensor goes by whose memory may be a part of another: PyTorch's
    ``suggest_memory_format``, for which what is ambiguous is contiguous."""
    for layout in (channels_last, channels_last_3d):
        if layout.order is not None and len(layout.order) == len(shape):
            return layout if _like(shape, strides, layout.order) else contiguous_format
    return contiguous_format


def _like(shape: tuple, strides: tuple, order: tuple[int, ...]) -> bool:
    least = 0
    if not strides[1] or not math.prod(shape):
        return False
    for d in reversed(order):
        if strides[d] < least or (d == 0 and least == strides[1]):
            return False
        least = strides[d] * max(shape[d], 1)
    return True


def inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    """The permutation that undoes ``order``."""
    back = [0] * len(order)
    for i, d in enumerate(order):
        back[d] = i
    return tuple(back)
