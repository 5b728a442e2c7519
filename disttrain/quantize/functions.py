"""Functions that make quantized tensors, take them apart, and round as if they did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..backends.fused.products.int8_product import affine
from ..core import Tensor, wrap
from ..errors import ConfigError, DTypeError
from ..ops.primitives import quantization as prim
from ..ops.primitives.views import reshape
from .grids import Grid
from .tensor import QuantizedTensor, made
from .types import limits, quantized


def _real(x: Any, where: str) -> Tensor:
    if not isinstance(x, Tensor):
        raise TypeError(f"{where}: {type(x).__name__} given; needed a Tensor")
    if x.is_quantized or not x.dtype.is_floating_point:
        raise DTypeError(f"{where}: a tensor of {x.dtype!r} given; needed floating-point numbers")
    return x.detach()


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, (Tensor, np.generic)) else value


def quantize_per_tensor(input: Any, scale: Any, zero_point: Any, dtype: Any) -> Any:
    """``input``, or each of several tensors, rounded to the numbers (q - zero_point) * scale."""
    if isinstance(input, (list, tuple)):
        grids = zip(input, _each(scale), _each(zero_point), strict=True)
        return [quantize_per_tensor(x, s, z, dtype) for x, s, z in grids]
    where = "quantize_per_tensor"
    kind, grid = quantized(dtype, where), Grid(float(_number(scale)), int(_number(zero_point)))
    x = _real(input, where)
    grid.check(where, kind, tuple(x.shape))
    return made(grid.levels(x, kind), grid, kind)


def _each(values: Any) -> Sequence:
    return values.tolist() if isinstance(values, Tensor) else values


def quantize_per_channel(
    input: Tensor, scales: Tensor, zero_points: Tensor, axis: int, dtype: Any
) -> QuantizedTensor:
    """``input`` with a scale and a zero point for each slice along ``axis``. Floating-point zero
    points are added before rounding."""
    where = "quantize_per_channel"
    kind, grid = quantized(dtype, where), Grid(scales, zero_points, axis)
    x = _real(input, where)
    grid.check(where, kind, tuple(x.shape))
    return made(grid.levels(x, kind), grid, kind)


def quantize_per_tensor_dynamic(input: Tensor, dtype: Any, reduce_range: bool) -> QuantizedTensor:
    """``input`` on a grid from its least to its greatest number."""
    where = "quantize_per_tensor_dynamic"
    kind, x = quantized(dtype, where), _real(input, where)
    least, most = limits(kind, reduce_range)
    scale, zero = dynamic_grid(x, least, most)
    return quantize_per_tensor(x, scale, zero, kind)


def dynamic_grid(x: Tensor, low: int, high: int) -> tuple[float, int]:
    """(scale, zero point) of the grid of integers from ``low`` to ``high`` that has all numbers of
    ``x``."""
    if not x.numel():
        raise ConfigError("quantize_per_tensor_dynamic: an empty tensor has no range")
    scale, zero = affine(x.min().item(), x.max().item(), low, high)
    return float(scale), int(zero)


def dequantize(input: Any) -> Any:
    """The numbers in float32, of a tensor or of each of several."""
    if isinstance(input, (list, tuple)):
        return tuple(map(dequantize, input))
    return input.dequantize() if isinstance(input, QuantizedTensor) else input.float()


def int_repr(input: QuantizedTensor) -> Tensor:
    """The integers of a quantized tensor."""
    return _is_quantized(input, "int_repr").int_repr()


def _is_quantized(x: Any, where: str) -> QuantizedTensor:
    if not isinstance(x, QuantizedTensor):
        raise TypeError(f"{where}: {type(x).__name__} given; needed a quantized tensor")
    return x


def q_scale(input: QuantizedTensor) -> float:
    """The scale of a tensor with one grid."""
    return _is_quantized(input, "q_scale").q_scale()


def q_zero_point(input: QuantizedTensor) -> int:
    """The zero point of a tensor with one grid."""
    return _is_quantized(input, "q_zero_point").q_zero_point()


def q_per_channel_scales(input: QuantizedTensor) -> Tensor:
    """The scales of a tensor with a grid for each channel."""
    return _is_quantized(input, "q_per_channel_scales").q_per_channel_scales()


def q_per_channel_zero_points(input: QuantizedTensor) -> Tensor:
    """The zero points of a tensor with a grid for each channel."""
    return _is_quantized(input, "q_per_channel_zero_points").q_per_channel_zero_points()


def q_per_channel_axis(input: QuantizedTensor) -> int:
    """The dimension of the channels."""
    return _is_quantized(input, "q_per_channel_axis").q_per_channel_axis()


# --- as if ---------------------------------------------------------------------------------------
def _floating(x: Any, where: str) -> Tensor:
    if not isinstance(x, Tensor) or not x.dtype.is_floating_point:
        given = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise DTypeError(f"{where}: {given} given; needed a tensor of floating-point numbers")
    return x


def _range(where: str, quant_min: int, quant_max: int) -> dict[str, int]:
    if quant_min > quant_max:
        raise ConfigError(f"{where}: quant_min={quant_min} is greater than quant_max={quant_max}")
    return {"low": quant_min, "high": quant_max}


def _whole(zero: Any, kind: type = np.int32) -> Tensor:
    if isinstance(zero, Tensor):
        return zero if zero.dtype.is_floating_point else zero.int()
    return wrap(np.array(zero, kind))


def fake_quantize_per_tensor_affine(
    input: Tensor, scale: Any, zero_point: Any, quant_min: int, quant_max: int
) -> Tensor:
    """The numbers of a grid that are nearest to those of ``input``. The gradient is that of what is
    within the grid (straight through the rounding)."""
    where = "fake_quantize_per_tensor_affine"
    scale = scale.float() if isinstance(scale, Tensor) else wrap(np.array(scale, np.float32))
    zero, x = _whole(zero_point), _floating(input, where)
    if scale.numel() != 1 or zero.numel() != 1:
        raise ConfigError(f"{where}: needed one scale and one zero point")
    low = _range(where, quant_min, quant_max)
    scale, zero = reshape(scale, shape=()), reshape(zero, shape=())
    out: Tensor = prim.fake_quantize(x, scale, zero, **low)
    return out


def fake_quantize_per_channel_affine(
    input: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> Tensor:
    """The same with a scale and a zero point for each slice along ``axis``."""
    where = "fake_quantize_per_channel_affine"
    x, n = _floating(input, where), input.ndim
    if not -n <= axis < n:
        raise ConfigError(f"{where}: axis must be between 0 and number of dimensions of input")
    if tuple(scale.shape) != (x.shape[axis],) or tuple(zero_point.shape) != (x.shape[axis],):
        raise ConfigError(
            f"{where}: dimensions of scale and zero-point are not consistent with input tensor"
        )
    shape = tuple(-1 if d == axis % n else 1 for d in range(n))
    shape = tuple(scale.shape[0] if s == -1 else s for s in shape)
    params = _range(where, quant_min, quant_max)
    scales, zeros = reshape(scale.float(), shape=shape), reshape(_whole(zero_point), shape=shape)
    out: Tensor = prim.fake_quantize(x, scales, zeros, **params)
    return out


__all__ = [
    "dequantize", "dynamic_grid", "fake_quantize_per_channel_affine",
    "fake_quantize_per_tensor_affine", "int_repr", "q_per_channel_axis", "q_per_channel_scales",
    "q_per_channel_zero_points", "q_scale", "q_zero_point", "quantize_per_channel",
    "quantize_per_tensor", "quantize_per_tensor_dynamic",
]  # fmt: skip
