"""The functions that PyTorch's layers end in: with statistics and masks among their results, sizes
by position, words by number. Composed of what layers here are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import disttrain as dt

from ....core import Tensor, no_grad
from ....core.tracer import Tracer
from ....nn import functional as F
from ....nn.functional.linear import _shorten
from ....ops.functions.random import check_draw

_CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """``dropout`` with the places that are kept."""
    if train is False or not p:
        return input.clone(), dt.ones_like(input, dtype=dt.bool)
    kept = dt.rand_like(input) >= p if p < 1 else dt.zeros_like(input, dtype=dt.bool)
    scale = 1.0 / (1.0 - p) if p < 1 else 0.0
    return input * kept.to(input.dtype) * scale, kept


def _moments(x: Tensor, dims: Any, eps: float) -> tuple[Tensor, Tensor]:
    wide = x.float() if x.dtype in (dt.float16, dt.bfloat16) else x
    mean = wide.mean(dims, keepdim=True)
    return mean, (wide.var(dims, correction=0, keepdim=True) + eps).rsqrt()


def native_layer_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """``layer_norm`` with means and inverse deviations."""
    with no_grad():
        mean, rstd = _moments(input, tuple(range(-len(normalized_shape), 0)), eps)
    return F.layer_norm(input, normalized_shape, weight, bias, eps), mean, rstd


def native_group_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int, HxW: int,  # noqa: N803
    group: int, eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """``group_norm`` with means and inverse deviations (N, groups)."""
    with no_grad():
        mean, rstd = _moments(input.reshape(N, group, -1), -1, eps)
    return F.group_norm(input, group, weight, bias, eps), mean.squeeze(-1), rstd.squeeze(-1)


def native_batch_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
    running_var: Tensor | None, training: bool, momentum: float, eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """``batch_norm`` with the batch's means and inverse deviations (none where not training)."""
    mean = rstd = input.new_empty(0)
    if training:
        mean, rstd = batch_norm_stats(input, eps)
    out = F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    return out, mean, rstd


def _but_channels(input: Tensor) -> tuple[int, ...]:
    return tuple(d for d in range(input.ndim) if d != 1)


def batch_norm_stats(input: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Means and inverse deviations of the channels."""
    with no_grad():
        mean, rstd = _moments(input, _but_channels(input), eps)
    return mean.reshape(-1), rstd.reshape(-1)


def batch_norm_update_stats(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, momentum: float
) -> tuple[Tensor, Tensor]:
    """Means and variances of the channels, which the running ones move to."""
    with no_grad():
        dims, count = _but_channels(input), input.numel() // input.shape[1]
        mean, var = input.mean(dims), input.var(dims, correction=0)
        _move(running_mean, mean, momentum)
        _move(running_var, var * (count / max(count - 1, 1)), momentum)
    return mean, var


def _move(running: Tensor | None, now: Tensor, momentum: float) -> None:
    if running is not None:
        running.mul_(1 - momentum).add_(now.to(running.dtype), alpha=momentum)


def _along(t: Tensor | None, input: Tensor) -> Any:
    return None if t is None else t.reshape(1, -1, *(1,) * (input.ndim - 2))


def batch_norm_elemt(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, invstd: Tensor,
    eps: float,
) -> Tensor:  # fmt: skip
    """Normalised by these statistics."""
    out = (input - _along(mean, input)) * _along(invstd, input)
    out = out if weight is None else out * _along(weight, input)
    return out if bias is None else out + _along(bias, input)


def batch_norm_gather_stats_with_counts(
    input: Tensor, mean: Tensor, invstd: Tensor, running_mean: Tensor | None,
    running_var: Tensor | None, momentum: float, eps: float, counts: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The statistics of all ranks (ranks, channels), which had ``counts`` elements, as one."""
    with no_grad():
        share = (counts / counts.sum()).reshape(-1, 1).to(mean.dtype)
        whole = (mean * share).sum(0)
        squares = invstd.pow(-2) - eps + (mean - whole).square()
        var = (squares * share).sum(0)
        total = float(counts.sum())
        _move(running_mean, whole, momentum)
        _move(running_var, var * (total / max(total - 1, 1)), momentum)
    return whole, (var + eps).rsqrt()


def batch_norm_gather_stats(
    input: Tensor, mean: Tensor, invstd: Tensor, running_mean: Tensor | None,
    running_var: Tensor | None, momentum: float, eps: float, count: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The same where all ranks had ``count`` elements."""
    counts = mean.new_full((mean.shape[0],), float(count))
    return batch_norm_gather_stats_with_counts(
        input, mean, invstd, running_mean, running_var, momentum, eps, counts
    )


def batch_norm_backward_reduce(
    grad_out: Tensor, input: Tensor, mean: Tensor, invstd: Tensor, weight: Tensor | None,
    input_g: bool, weight_g: bool, bias_g: bool,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Sums over the channels: of gradients, of those times what they are of, and the gradients of
    weight and bias."""
    dims = _but_channels(input)
    total = grad_out.sum(dims)
    moved = (grad_out * (input - _along(mean, input))).sum(dims)
    of_weight = moved * invstd if weight_g else None
    return (
        total if input_g else None, moved if input_g else None, of_weight,
        total if bias_g else None,
    )  # fmt: skip


def batch_norm_backward_elemt(
    grad_out: Tensor, input: Tensor, mean: Tensor, invstd: Tensor, weight: Tensor | None,
    sum_dy: Tensor, sum_dy_xmu: Tensor, count: Tensor,
) -> Tensor:  # fmt: skip
    """The gradient of the input, from the sums of all ranks."""
    n = count.sum().to(sum_dy.dtype)
    steep = _along(invstd.square() * sum_dy_xmu / n, input) * (input - _along(mean, input))
    scale = invstd if weight is None else invstd * weight
    return (grad_out - _along(sum_dy / n, input) - steep) * _along(scale, input)


# --- convolutions, places ---------------------------------------------------------------------
def convolution(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int,
) -> Tensor:  # fmt: skip
    """Any convolution, by position."""
    n = weight.ndim - 2
    stride, padding, dilation, output_padding = (
        tuple(x) * n if len(x) == 1 else tuple(x)
        for x in (stride, padding, dilation, output_padding)
    )
    if transposed:
        return _TRANSPOSED[n](
            input, weight, bias, stride, padding, output_padding, groups, dilation
        )
    return _CONVOLUTIONS[n](input, weight, bias, stride, padding, dilation, groups)


def cudnn_convolution(
    input: Tensor, weight: Tensor, padding: Any, stride: Any, dilation: Any, groups: int,
    benchmark: bool, deterministic: bool, allow_tf32: bool,
) -> Tensor:  # fmt: skip
    """``convolution``; on the CPU, too."""
    return convolution(input, weight, None, stride, padding, dilation, False, (0,), groups)


def cudnn_convolution_transpose(
    input: Tensor, weight: Tensor, padding: Any, output_padding: Any, stride: Any, dilation: Any,
    groups: int, benchmark: bool, deterministic: bool, allow_tf32: bool,
) -> Tensor:  # fmt: skip
    """A transposed one."""
    return convolution(input, weight, None, stride, padding, dilation, True, output_padding, groups)


def cudnn_convolution_relu(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any,
    groups: int,
) -> Tensor:  # fmt: skip
    """With ``relu``."""
    return convolution(input, weight, bias, stride, padding, dilation, False, (0,), groups).relu()


def cudnn_convolution_add_relu(
    input: Tensor, weight: Tensor, z: Tensor, alpha: Any, bias: Tensor | None, stride: Any,
    padding: Any, dilation: Any, groups: int,
) -> Tensor:  # fmt: skip
    """relu(conv + alpha z)"""
    out = convolution(input, weight, bias, stride, padding, dilation, False, (0,), groups)
    return (out + z * (1 if alpha is None else alpha)).relu()


def cudnn_batch_norm(
    input: Tensor, weight: Tensor, bias: Tensor | None, running_mean: Tensor | None,
    running_var: Tensor | None, training: bool, exponential_average_factor: float, epsilon: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    """``native_batch_norm``, and bytes that its backward would keep: none."""
    found = native_batch_norm(
        input, weight, bias, running_mean, running_var, training, exponential_average_factor,
        epsilon,
    )  # fmt: skip
    return (*found, dt.empty(0, dtype=dt.uint8))


def native_norm(
    input: Tensor, p: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Tensor:
    """``norm``."""
    return dt.norm(input, 2 if p is None else p, dim or None, keepdim, dtype=dtype)


def dequantize(tensor: Any) -> Any:
    """The numbers in float32, of a tensor or of each of several."""
    if isinstance(tensor, (list, tuple)):
        return tuple(map(dequantize, tensor))
    whole: Any = tensor
    return whole.dequantize() if tensor.is_quantized else tensor.to(dt.float32)


def cudnn_affine_grid_generator(theta: Tensor, N: int, C: int, H: int, W: int) -> Tensor:  # noqa: N803
    """``affine_grid``, with corners aligned."""
    return F.affine_grid(theta, [N, C, H, W], True)


def cudnn_grid_sampler(input: Tensor, grid: Tensor) -> Tensor:
    """``grid_sample``, with corners aligned."""
    return F.grid_sample(input, grid, align_corners=True)


def _sampler(n: int) -> Callable[..., Tensor]:
    def run(
        input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int,
        align_corners: bool,
    ) -> Tensor:  # fmt: skip
        mode = ("bilinear", "nearest", "bicubic")[interpolation_mode]
        outside = ("zeros", "border", "reflection")[padding_mode]
        return F.grid_sample(input, grid, mode, outside, align_corners)

    run.__name__ = run.__qualname__ = f"grid_sampler_{n}d"
    run.__doc__ = "``grid_sample``, with its words by number."
    return run


# --- tables -----------------------------------------------------------------------------------
def embedding_bag(
    weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: bool = False,
    mode: int = 0, sparse: bool = False, per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False, padding_idx: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """``nn.functional.embedding_bag`` (sum, mean, max by number) with what PyTorch's backward
    reads: the bag of each index (not of sums), the sizes of the bags, and sizes again (of maxima,
    the rows that they are of)."""
    how = ("sum", "mean", "max")[mode]
    out = F.embedding_bag(
        indices, weight, offsets, None, 2.0, scale_grad_by_freq, how, sparse, per_sample_weights,
        include_last_offset, padding_idx,
    )  # fmt: skip
    starts = offsets.long()
    if include_last_offset:
        starts = starts[:-1]
    ends = dt.cat([starts[1:], starts.new_full((1,), indices.numel())])
    sizes = ends - starts
    bags = dt.repeat_interleave(dt.arange(len(sizes)), sizes)
    if mode == 0:
        nothing = dt.zeros_like(sizes)
        return out, bags[:0], nothing, nothing
    most = sizes
    if mode == 2:
        rows = weight.detach()[indices]
        firsts = [indices[a:b][rows[a:b].argmax(0)] for a, b in zip(starts.tolist(), ends.tolist())
                  if b > a]  # fmt: skip
        most = dt.stack(firsts) if firsts else sizes
    return out, bags, sizes, most


def embedding_renorm_(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Rows that are named and longer than ``max_norm``, to that length, in place."""
    _shorten(weight, indices, max_norm, norm_type)
    return weight


def hash_tensor(input: Tensor, dim: Any = (), keepdim: bool = False, mode: int = 0) -> Tensor:
    """The exclusive or over the bits of the elements (floating-point ones in float64)."""
    if mode:
        raise RuntimeError(f"hash_tensor: mode={mode} given; needed 0")
    array = input.detach().cpu()
    numbers = array.double().numpy() if input.is_floating_point() else array.long().numpy()
    dims = dim if isinstance(dim, (tuple, list)) else (dim,)
    over: Any = tuple(dims) if len(dims) else None
    bits = np.ascontiguousarray(numbers).view(np.int64)
    found = np.bitwise_xor.reduce(bits, axis=over, keepdims=bool(keepdim))  # type: ignore[call-overload]
    return dt.from_numpy(np.asarray(found).view(np.uint64)).to(input.device)


def binomial(count: Tensor, prob: Tensor, generator: Any = None) -> Tensor:
    """How many of ``count`` trials succeed, each with probability ``prob``."""
    if not (count.is_floating_point() and prob.is_floating_point()):
        raise RuntimeError("binomial only supports floating-point dtypes for count and prob")
    counts, chances = dt.broadcast_tensors(count.detach(), prob.detach())
    check_draw("binomial", counts, chances)
    every = counts.plain() if isinstance(counts, Tracer) else counts  # of all examples of a batch
    most = int(every.max()) if every.numel() else 0
    total = dt.zeros_like(counts)
    for trial in range(most):  # sums of trials, so that they are the generator's own numbers
        drawn = dt.rand(counts.shape, generator=generator, device=counts.device)
        total = total + (drawn.to(counts.dtype) < chances).to(counts.dtype) * (counts > trial)
    return total


def _int_mm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of matrices of int8 as int32."""
    if input.ndim != 2 or mat2.ndim != 2 or {input.dtype, mat2.dtype} != {dt.int8}:
        raise RuntimeError(
            f"_int_mm: {input.dtype} of shape {list(input.shape)} and {mat2.dtype} of shape "
            f"{list(mat2.shape)} given; needed two matrices of int8"
        )
    # Sums of products of int8 are exact in float64.
    return dt.mm(input.double(), mat2.double()).to(dt.int32)


def names() -> dict[str, Any]:
    """What ``torch`` gets from here."""
    functions = (
        native_dropout, native_layer_norm, native_group_norm, native_batch_norm, batch_norm_stats,
        batch_norm_update_stats, batch_norm_elemt, batch_norm_gather_stats,
        batch_norm_gather_stats_with_counts, batch_norm_backward_reduce, batch_norm_backward_elemt,
        convolution, cudnn_convolution, cudnn_convolution_transpose, cudnn_convolution_relu,
        cudnn_convolution_add_relu, cudnn_batch_norm, native_norm, dequantize,
        cudnn_affine_grid_generator, cudnn_grid_sampler, embedding_bag,
        embedding_renorm_, hash_tensor, binomial, _int_mm, _sampler(2), _sampler(3),
    )  # fmt: skip
    found: dict[str, Any] = {f.__name__: f for f in functions}
    found["native_channel_shuffle"] = F.native_channel_shuffle
    found["cudnn_is_acceptable"] = lambda tensor: bool(tensor.is_cuda)
    return found
