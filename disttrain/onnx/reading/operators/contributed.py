"""Operators of onnxruntime (com.microsoft): what its quantizer and its optimizer write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .... import linalg
from ....core.tensor import Tensor
from ....core.types import dtypes
from ....errors import OperatorError
from ....nn import functional as F
from ....ops import api
from ..elements import NUMBERS
from ..table import MICROSOFT, find, operator
from . import gathering, shapes  # noqa: F401 (whose rows are used)
from .convolution import conv
from .pooling import average_pool, global_average_pool
from .products import gemm
from .quantized import dequantize_linear, quantize
from .recurrent import lstm


def _single(how: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function of quantized numbers: by way of those that they stand for."""

    def run(
        x: Tensor, x_scale: Tensor, x_zero: Tensor | None, y_scale: Tensor,
        y_zero: Tensor | None = None, **words: Any,
    ) -> Tensor:  # fmt: skip
        out = how(dequantize_linear(x, x_scale, x_zero), **words)
        return quantize(out, y_scale, y_zero, NUMBERS[x.dtype])

    return run


def _channels_first(x: Tensor, channels_last: int, how: Callable[[Tensor], Tensor]) -> Tensor:
    if not channels_last:
        return how(x)
    return api.movedim(how(api.movedim(x, -1, 1)), 1, -1)


def _quantized_average(x: Tensor, *, channels_last: int = 0, **words: Any) -> Tensor:
    return _channels_first(x, channels_last, lambda t: average_pool(t, **words))


def _quantized_global(x: Tensor, *, channels_last: int = 0) -> Tensor:
    return _channels_first(x, channels_last, global_average_pool)


def _quantized_leaky(x: Tensor, *, alpha: float = 0.01) -> Tensor:
    return F.leaky_relu(x, alpha)


for _name, _how in (
    ("QLinearSigmoid", api.sigmoid), ("QLinearLeakyRelu", _quantized_leaky),
    ("QLinearAveragePool", _quantized_average), ("QLinearGlobalAveragePool", _quantized_global),
):  # fmt: skip
    operator(_name, domain=MICROSOFT, buffers=(1, 2, 3, 4))(_single(_how))


@operator("QLinearSoftmax", domain=MICROSOFT, buffers=(1, 2, 3, 4))
def _quantized_softmax(
    x: Tensor, x_scale: Tensor, x_zero: Tensor | None, y_scale: Tensor,
    y_zero: Tensor | None = None, *, axis: int = -1, opset: int = 13,
) -> Tensor:  # fmt: skip
    wide = dequantize_linear(x, x_scale, x_zero)
    if opset < 13:
        out = F.softmax(wide.flatten(axis if axis >= 0 else axis + x.ndim), -1).reshape(x.shape)
    else:
        out = F.softmax(wide, axis)
    return quantize(out, y_scale, y_zero, NUMBERS[x.dtype])


@operator("QLinearConcat", domain=MICROSOFT)
def _quantized_concat(y_scale: Tensor, y_zero: Tensor, *given: Tensor, axis: int) -> Tensor:
    parts = [dequantize_linear(*given[i : i + 3]) for i in range(0, len(given), 3)]
    return quantize(api.cat(parts, axis), y_scale, y_zero, NUMBERS[y_zero.dtype])


@operator("QGemm", domain=MICROSOFT, buffers=(1, 2, 4, 5, 7, 8))
def _quantized_gemm(
    a: Tensor, a_scale: Tensor, a_zero: Tensor, b: Tensor, b_scale: Tensor, b_zero: Tensor,
    c: Tensor | None = None, y_scale: Tensor | None = None, y_zero: Tensor | None = None, *,
    alpha: float = 1.0, transA: int = 0, transB: int = 0,
) -> Tensor:  # fmt: skip
    left = dequantize_linear(a, a_scale, a_zero)
    out = gemm(left, dequantize_linear(b, b_scale, b_zero, axis=0 if transB else 1),
               alpha=alpha, transA=transA, transB=transB)  # fmt: skip
    if c is not None:
        out = out + c.to(dtypes.float32) * (a_scale * b_scale * alpha)
    if y_scale is None or y_zero is None:
        return out
    return quantize(out, y_scale, y_zero, NUMBERS[y_zero.dtype])


@operator("DynamicQuantizeLSTM", domain=MICROSOFT, buffers=(8, 9, 10, 11))
def _quantized_lstm(
    x: Tensor, w: Tensor, r: Tensor, b: Any = None, lengths: Any = None, h: Any = None,
    c: Any = None, p: Any = None, w_scale: Any = None, w_zero: Any = None, r_scale: Any = None,
    r_zero: Any = None, *, node: Any, **words: Any,
) -> tuple:  # fmt: skip
    """With the numbers that the integers stand for; what goes in is not rounded."""
    weights = []
    for t, scale, zero in ((w, w_scale, w_zero), (r, r_scale, r_zero)):
        wide = t.to(dtypes.float32) - zero.to(dtypes.float32).reshape(t.shape[0], 1, -1)
        weights.append((wide * scale.reshape(t.shape[0], 1, -1)).transpose(1, 2))
    return lstm(x, *weights, b, lengths, h, c, p, node=node, **words)


# --- what fusions make ---------------------------------------------------------------------------
def _activated(x: Tensor, name: str, numbers: Any) -> Tensor:
    table: dict[str, Callable[..., Tensor]] = {
        "": lambda t: t, "Relu": F.relu, "Sigmoid": api.sigmoid, "Tanh": api.tanh,
        "LeakyRelu": F.leaky_relu, "Clip": api.clamp,
        "HardSigmoid": lambda t, a, b: api.clamp(t * a + b, 0.0, 1.0),
        "Elu": F.elu, "Celu": F.celu, "Softplus": F.softplus, "Softsign": F.softsign,
        "ThresholdedRelu": lambda t, a: api.where(t > a, t, api.zeros_like(t)),
        "ScaledTanh": lambda t, a, b: api.tanh(t * b) * a,
    }  # fmt: skip
    if name not in table:
        raise OperatorError(f"activation {name!r}; known are {', '.join(filter(None, table))}")
    return table[name](x, *(numbers or ()))


@operator("FusedConv", domain=MICROSOFT)
def _fused_conv(
    x: Tensor, w: Tensor, b: Tensor | None = None, z: Tensor | None = None, *,
    activation: str = "", activation_params: Any = None, **words: Any,
) -> Tensor:  # fmt: skip
    out = conv(x, w, b, **words)
    return _activated(out if z is None else out + z, activation, activation_params)


@operator("FusedGemm", domain=MICROSOFT)
def _fused_gemm(
    a: Tensor, b: Tensor, c: Tensor | None = None, *, activation: str = "",
    activation_alpha: float | None = None, activation_beta: float | None = None,
    activation_gamma: float | None = None, **words: Any,
) -> Tensor:  # fmt: skip
    numbers = [n for n in (activation_alpha, activation_beta) if n is not None]
    return _activated(gemm(a, b, c, **words), activation, numbers)


@operator("BiasDropout", domain=MICROSOFT)
def _bias_dropout(
    x: Tensor, bias: Tensor, residual: Tensor | None = None, ratio: Any = None,
    training: Any = None, *, seed: int = 0,
) -> tuple:  # fmt: skip
    """For inference, where nothing is dropped."""
    out = x + bias if residual is None else x + bias + residual
    return out, api.ones_like(out, dtype=dtypes.bool)


@operator("BiasAdd", domain=MICROSOFT)
def _bias_add(x: Tensor, bias: Tensor, skip: Tensor) -> Tensor:
    return x + bias + skip


@operator("BiasSplitGelu", domain=MICROSOFT)
def _bias_split_gelu(x: Tensor, bias: Tensor) -> Tensor:
    left, right = api.chunk(x + bias, 2, -1)
    return left * F.gelu(right)


@operator("GroupNorm", domain=MICROSOFT)
def _group_norm(
    x: Tensor, gamma: Tensor, beta: Tensor, *, groups: int, activation: int = 0,
    channels_last: int = 1, epsilon: float = 1e-5,
) -> Tensor:  # fmt: skip
    out = _channels_first(x, channels_last, lambda t: F.group_norm(t, groups, gamma, beta, epsilon))
    return F.silu(out) if activation else out


@operator("Inverse", domain=MICROSOFT)
def _inverse(x: Tensor) -> Tensor:
    return linalg.inv(x)


for _name in ("GatherND", "Pad", "Trilu"):  # as ONNX's own
    _row: Any = find("", _name, 17)
    operator(_name, domain=MICROSOFT, numbers=tuple(_row.numbers))(_row.function)


@operator("CDist", domain=MICROSOFT)
def _distances(a: Tensor, b: Tensor, *, metric: str = "sqeuclidean") -> Tensor:
    difference = a.unsqueeze(1) - b
    found = (difference * difference).sum(-1)
    return api.sqrt(found) if metric == "euclidean" else found


@operator("ExpandDims", domain=MICROSOFT, numbers=(1,))
def _expand_dims(x: Tensor, axis: Any) -> Tensor:
    return api.unsqueeze(x, int(axis.one()))


@operator("Gelu", domain=MICROSOFT)
def _gelu(x: Tensor) -> Tensor:
    return F.gelu(x)


@operator("BiasGelu", domain=MICROSOFT)
def _bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    return F.gelu(x + bias)


@operator("FastGelu", domain=MICROSOFT)
def _fast_gelu(x: Tensor, bias: Tensor | None = None) -> Tensor:
    return F.gelu(x if bias is None else x + bias, approximate="tanh")


@operator("QuickGelu", domain=MICROSOFT)
def _quick_gelu(x: Tensor, *, alpha: float = 1.702) -> Tensor:
    return x * api.sigmoid(x * alpha)


@operator("SkipLayerNormalization", domain=MICROSOFT)
def _skip_layer_norm(
    x: Tensor, skip: Tensor, gamma: Tensor, beta: Tensor | None = None, bias: Tensor | None = None,
    *, epsilon: float = 1e-12,
) -> tuple:  # fmt: skip
    total = x + skip if bias is None else x + skip + bias
    return F.layer_norm(total, (total.shape[-1],), gamma, beta, epsilon), None, None, total


@operator("SimplifiedLayerNormalization")
def _simplified_layer_norm(
    x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    return F.rms_norm(x, tuple(scale.shape), scale, epsilon)


@operator("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def _skip_simplified(
    x: Tensor, skip: Tensor, gamma: Tensor, bias: Tensor | None = None, *, epsilon: float = 1e-12
) -> tuple:
    total = x + skip if bias is None else x + skip + bias
    return F.rms_norm(total, (total.shape[-1],), gamma, epsilon), None, None, total


@operator("MatMulNBits", domain=MICROSOFT, buffers=(1, 2, 3))
def _matmul_bits(
    a: Tensor, b: Tensor, scales: Tensor, zeros: Tensor | None = None, group: Tensor | None = None,
    bias: Tensor | None = None, *, K: int, N: int, bits: int = 4, block_size: int,
    accuracy_level: int = 0, weight_prepacked: int = 0,
) -> Tensor:  # fmt: skip
    """A product with weights of 4 or 8 bits in blocks along their rows: (N, blocks, bytes)."""
    if bits not in (4, 8) or group is not None or weight_prepacked:
        raise OperatorError(f"weights of {bits} bits, regrouped or packed for a machine")
    blocks = -(-K // block_size)
    numbers = _unpacked(b.reshape(N, blocks, -1), bits)
    zero: Any = float(1 << (bits - 1))
    if zeros is not None and zeros.dtype == dtypes.uint8:
        zero = _unpacked(zeros.reshape(N, -1), bits)[:, :blocks].unsqueeze(-1)
    elif zeros is not None:
        zero = zeros.reshape(N, blocks, 1)
    weights = ((numbers - zero) * scales.reshape(N, blocks, 1)).reshape(N, -1)[:, :K]
    return F.linear(a, weights.to(a.dtype), bias)


def _unpacked(t: Tensor, bits: int) -> Tensor:
    """Bytes of one or two numbers, the lower bits first, as numbers."""
    if bits == 8:
        return t.to(dtypes.float32)
    return api.stack([t & 15, t >> 4], -1).flatten(-2).to(dtypes.float32)
