"""Bits of integers: how many are set, packed into bytes, taken out of them."""

from __future__ import annotations

from ..core.tensor import Tensor
from ..core.types import dtypes
from ..ops import api as ops
from .axes import axis_of


def bitwise_count(x: Tensor) -> Tensor:
    """How many bits of \\|x\\| are set, as uint8."""
    width = 8 * x.element_size()
    total = ops.zeros_like(x)
    value = ops.abs(x) if x.dtype.is_signed else x
    for k in range(width):
        total = total + ((value >> k) & 1)
    return total.to(dtypes.uint8)


def packbits(a: Tensor, axis: int | None = None, bitorder: str = "big") -> Tensor:
    """Eight elements along ``axis``, as flags, in each byte: the first the highest bit, or the
    lowest (``"little"``)."""
    little, x = _little(bitorder), a.reshape(-1) if axis is None else a
    dim = axis_of(-1 if axis is None else axis, x.ndim)
    flags = ops.movedim(x != 0, dim, -1).to(dtypes.uint8)
    short = -flags.shape[-1] % 8
    flags = ops.pad(flags, (0, short)) if short else flags
    flags = ops.reshape(flags, (*flags.shape[:-1], flags.shape[-1] // 8, 8))
    packed = ops.sum(flags << _places(little), -1, dtype=dtypes.uint8)
    return ops.movedim(packed, -1, dim)


def unpackbits(
    a: Tensor, axis: int | None = None, count: int | None = None, bitorder: str = "big"
) -> Tensor:
    """The bits of bytes along ``axis``: the first ``count`` of them, with zeros where they end."""
    if a.dtype is not dtypes.uint8:
        raise TypeError("Expected an input array of unsigned byte data type")
    little, x = _little(bitorder), a.reshape(-1) if axis is None else a
    dim = axis_of(-1 if axis is None else axis, x.ndim)
    bits = (ops.unsqueeze(ops.movedim(x, dim, -1), -1) >> _places(little)) & 1
    bits = ops.reshape(bits, (*bits.shape[:-2], bits.shape[-2] * 8))
    if count is not None:
        n = bits.shape[-1]
        keep = count if count >= 0 else n + count
        bits = ops.pad(bits, (0, keep - n)) if keep > n else bits[..., :keep]
    return ops.movedim(bits, -1, dim)


def _little(bitorder: str) -> bool:
    if bitorder not in ("little", "big"):
        raise ValueError("'order' must be either 'little' or 'big'")
    return bitorder == "little"


def _places(little: bool) -> Tensor:
    places = ops.arange(8, dtype=dtypes.uint8)
    return places if little else ops.flip(places, (0,))


__all__ = ["bitwise_count", "packbits", "unpackbits"]
