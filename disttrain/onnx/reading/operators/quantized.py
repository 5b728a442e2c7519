"""Integers with a scale: quantization and its inverse, products and convolutions of integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....core.tensor import Tensor
from ....core.types import dtypes
from ....ops import api
from ..elements import NUMBERS, held_in
from ..table import MICROSOFT, operator
from .convolution import conv
from .elementwise import cast

_LIMITS = {21: (0, 15), 22: (-8, 7), 25: (0, 3), 26: (-2, 1)}  # of the types of fewer bits


def _along(t: Tensor, x: Tensor, axis: int, block_size: int) -> Tensor:
    """A scale or a zero point in the dimensions of ``x``: one number, one for each place of an
    axis, or one for each block of places."""
    if t.ndim == 0 or (t.ndim == 1 and t.shape[0] == 1):
        return t.reshape(())
    axis = axis + x.ndim if axis < 0 else axis
    if block_size:
        wide = api.repeat_interleave(t, block_size, axis)
        return api.narrow(wide, axis, 0, x.shape[axis])
    return t.reshape([-1 if i == axis else 1 for i in range(x.ndim)]) if t.ndim == 1 else t


def _bounds(kind: int) -> tuple[int, int]:
    if kind in _LIMITS:
        return _LIMITS[kind]
    info = dtypes.iinfo(held_in(kind))
    return info.min, info.max


def quantize(x: Tensor, scale: Tensor, zero: Tensor | None, kind: int, saturate: int = 1) -> Tensor:
    """``round(x / scale) + zero``, within what the type holds."""
    y = x / scale
    if kind == 23 or held_in(kind).is_floating_point:
        return cast(y, to=kind, saturate=saturate)
    y = api.round(y)
    low, high = _bounds(kind)
    if zero is not None:
        y = y + zero.to(y.dtype)
    return api.clamp(y, low, high).to(held_in(kind))


@operator("QuantizeLinear", buffers=(1, 2))
def _quantize_linear(
    x: Tensor, scale: Tensor, zero: Tensor | None = None, *, axis: int = 1, block_size: int = 0,
    output_dtype: int = 0, precision: int = 0, saturate: int = 1, node: Any,
) -> Tensor:  # fmt: skip
    kind = output_dtype or node.narrow_type(2)
    kind = kind or (2 if zero is None else NUMBERS[zero.dtype])
    wide = dtypes.float32 if x.dtype != dtypes.float64 else x.dtype
    if precision:
        wide = held_in(precision)
    s = _along(scale, x, axis, block_size).to(wide)
    z = None if zero is None else _along(zero, x, axis, block_size)
    return quantize(x.to(wide), s, z, kind, saturate)


@operator("DequantizeLinear", buffers=(1, 2))
def dequantize_linear(
    x: Tensor, scale: Tensor, zero: Tensor | None = None, *, axis: int = 1, block_size: int = 0,
    output_dtype: int = 0,
) -> Tensor:  # fmt: skip
    """``(x - zero) * scale``."""
    kind = held_in(output_dtype) if output_dtype else scale.dtype
    s = _along(scale, x, axis, block_size)
    wide = _integers(x, None if zero is None else _along(zero, x, axis, block_size))
    return (wide.to(dtypes.float32) * s.to(dtypes.float32)).to(kind)


def _integers(x: Tensor, zero: Tensor | None) -> Tensor:
    """``x - zero``, exactly."""
    if x.dtype.is_floating_point:
        wide = x.to(dtypes.float32)
        return wide if zero is None else wide - zero.to(dtypes.float32)
    kind = dtypes.int64 if x.dtype in (dtypes.int32, dtypes.uint32) else dtypes.int32
    return x.to(kind) if zero is None else x.to(kind) - zero.to(kind)


@operator("DynamicQuantizeLinear")
def _dynamic_quantize_linear(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    zero = api.zeros((), dtype=x.dtype)
    low, high = api.minimum(x.amin(), zero), api.maximum(x.amax(), zero)
    scale = (high - low) / 255.0
    safe = api.where(scale == 0, api.ones_like(scale), scale)
    at = api.clamp(api.round(-low / safe), 0, 255).to(dtypes.uint8)
    return quantize(x, safe, at, 2), scale, at


def _per_row(zero: Tensor | None, a: Tensor) -> Tensor | None:
    """A zero point for each row of a matrix."""
    if zero is None or zero.ndim != 1 or zero.shape[0] == 1:
        return zero if zero is None or zero.ndim > 1 else zero.reshape(())
    return zero.reshape(-1, 1)


def _exact(product: Callable[..., Tensor], *given: Tensor, **words: Any) -> Tensor:
    """A product of small integers, in float64, which has all of them exactly."""
    return api.round(product(*[t.to(dtypes.float64) for t in given], **words))


@operator("MatMulInteger")
def _matmul_integer(
    a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None
) -> Tensor:
    left = _integers(a, _per_row(a_zero, a))
    right = _integers(
        b,
        b_zero if b_zero is None or b_zero.ndim != 1 or b_zero.shape[0] > 1 else b_zero.reshape(()),
    )
    return _exact(api.matmul, left, right).to(dtypes.int32)


def _by_filter(t: Tensor | None, w: Tensor) -> Tensor | None:
    if t is None or t.ndim == 0:
        return t
    return t.reshape(()) if t.shape[0] == 1 else t.reshape(-1, *[1] * (w.ndim - 1))


@operator("ConvInteger")
def _conv_integer(
    x: Tensor, w: Tensor, x_zero: Tensor | None = None, w_zero: Tensor | None = None, **how: Any
) -> Tensor:
    given = _integers(x, None if x_zero is None else x_zero.reshape(()))
    return _exact(conv, given, _integers(w, _by_filter(w_zero, w)), **how).to(dtypes.int32)


@operator("QLinearMatMul", buffers=(1, 2, 4, 5, 6, 7))
def _qlinear_matmul(
    a: Tensor, a_scale: Tensor, a_zero: Tensor, b: Tensor, b_scale: Tensor, b_zero: Tensor,
    y_scale: Tensor, y_zero: Tensor,
) -> Tensor:  # fmt: skip
    left = _integers(a, _per_row(a_zero, a))
    right = _integers(
        b, b_zero.reshape(()) if b_zero.ndim == 1 and b_zero.shape[0] == 1 else b_zero
    )
    total = _exact(api.matmul, left, right)
    s: list[Any] = [_per_row(a_scale, a), b_scale, _per_row(y_scale, a)]
    scaled = total * s[0].to(dtypes.float64) * s[1].to(dtypes.float64) / s[2].to(dtypes.float64)
    zero = _per_row(y_zero, a)
    one = api.ones((), dtype=dtypes.float64)
    if y_zero.dtype.is_floating_point:
        return scaled.to(y_zero.dtype)
    return quantize(scaled, one, zero, NUMBERS[y_zero.dtype])


@operator("QLinearConv", buffers=(1, 2, 4, 5, 6, 7, 8))
def _qlinear_conv(
    x: Tensor, x_scale: Tensor, x_zero: Tensor, w: Tensor, w_scale: Tensor, w_zero: Tensor,
    y_scale: Tensor, y_zero: Tensor, b: Tensor | None = None, **how: Any,
) -> Tensor:  # fmt: skip
    given = _integers(x, x_zero.reshape(()))
    total = _exact(conv, given, _integers(w, _by_filter(w_zero, w)), **how)
    per = [1, -1, *[1] * (total.ndim - 2)]
    if b is not None:
        total = total + b.to(dtypes.float64).reshape(per)
    scale = w_scale.to(dtypes.float64)
    scale = scale.reshape(per) if scale.ndim == 1 and scale.shape[0] > 1 else scale.reshape(())
    scaled = total * (x_scale.to(dtypes.float64).reshape(()) * scale)
    y = y_scale.to(dtypes.float64).reshape(())
    return quantize(scaled, y, y_zero.reshape(()), NUMBERS[y_zero.dtype])


# --- onnxruntime's -------------------------------------------------------------------------------
operator("QuantizeLinear", domain=MICROSOFT, buffers=(1, 2))(_quantize_linear)
operator("DequantizeLinear", domain=MICROSOFT, buffers=(1, 2))(dequantize_linear)


@operator("DynamicQuantizeMatMul", domain=MICROSOFT, buffers=(2, 3))
def _dynamic_quantize_matmul(
    a: Tensor, b: Tensor, b_scale: Tensor, b_zero: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    q, scale, zero = _dynamic_quantize_linear(a)
    return _matmul_integer_to_float(q, b, scale, b_scale, zero, b_zero, bias)


@operator("MatMulIntegerToFloat", domain=MICROSOFT, buffers=(2, 3, 4, 5))
def _matmul_integer_to_float(
    a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor, a_zero: Tensor | None = None,
    b_zero: Tensor | None = None, bias: Tensor | None = None,
) -> Tensor:  # fmt: skip
    total = _matmul_integer(a, b, a_zero, b_zero).to(dtypes.float32)
    out = total * (a_scale * b_scale)
    return out if bias is None else out + bias


def _binary(how: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    def run(
        a: Tensor, a_scale: Tensor, a_zero: Tensor, b: Tensor, b_scale: Tensor, b_zero: Tensor,
        y_scale: Tensor, y_zero: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        out = how(dequantize_linear(a, a_scale, a_zero), dequantize_linear(b, b_scale, b_zero))
        kind = NUMBERS[a.dtype] if y_zero is None else NUMBERS[y_zero.dtype]
        return quantize(out, y_scale, y_zero, kind)

    return run


for _name, _how in (("QLinearAdd", lambda a, b: a + b), ("QLinearMul", lambda a, b: a * b)):
    operator(_name, domain=MICROSOFT, buffers=(1, 2, 4, 5, 6, 7))(_binary(_how))
