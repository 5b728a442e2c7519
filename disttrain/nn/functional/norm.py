"""Normalisations."""

from __future__ import annotations

from typing import Any

from ... import ops
from ...core import Tensor, dtypes
from ...errors import ConfigError, ShapeError


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel (dimension 1) over the batch and all places (Ioffe, Szegedy, 2015).

    ``training``: with the batch's own statistics, which also move the running ones in place.
    """
    if training:
        shape = input.shape
        per_channel = shape.numel() // max(shape[1], 1) if len(shape) > 1 else 0
        if per_channel == 1:
            raise ShapeError(
                "batch_norm: expected more than 1 value per channel when training, got input of "
                f"shape {list(shape)}; use a larger batch, or .eval()"
            )
    elif running_mean is None or running_var is None:
        raise ConfigError(
            "batch_norm: evaluation needs running_mean and running_var; pass training=True to use "
            "the batch's own statistics"
        )
    return ops.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def layer_norm(
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise over the last dimensions, those of ``normalized_shape`` (Ba et al., 2016)"""
    shape = _tail("layer_norm", input, normalized_shape, weight)
    return ops.layer_norm(input, shape, weight, bias, eps)


def rms_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Divide by the root mean square over the last dimensions (Zhang, Sennrich, 2019)"""
    shape = _tail("rms_norm", input, normalized_shape, weight)
    if eps is None:
        eps = dtypes.finfo(input.dtype).eps
    dims = tuple(range(-len(shape), 0))
    out = input * ops.rsqrt(ops.square(input).mean(dims, keepdim=True) + eps)
    return out if weight is None else out * weight


def _tail(where: str, input: Tensor, normalized_shape: Any, weight: Any) -> tuple[int, ...]:
    if isinstance(normalized_shape, int):
        normalized_shape = (normalized_shape,)
    shape = tuple(normalized_shape)
    if not shape or tuple(input.shape[-len(shape) :]) != shape:
        raise ShapeError(
            f"{where}: input of shape {list(input.shape)} given; its last dimensions must be "
            f"normalized_shape={list(shape)}"
        )
    if weight is not None and tuple(weight.shape) != shape:
        raise ShapeError(
            f"{where}: weight of shape {list(weight.shape)} given; needed {list(shape)}"
        )
    return shape


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each sample over groups of channels (Wu, He, 2018)"""
    if input.ndim < 2:
        raise ShapeError(
            f"group_norm: input of shape {list(input.shape)} given; needed (N, C, ...)"
        )
    n, c = input.shape[:2]
    if num_groups < 1 or c % num_groups:
        raise ShapeError(
            f"group_norm: {c} channels cannot be split into num_groups={num_groups}; the number of "
            "channels must be divisible by it"
        )
    grouped = input.reshape(n, num_groups, -1)
    out = _standardised(grouped, (-1,), eps).reshape(input.shape)
    return _scaled(out, weight, bias)


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float | None = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel of each sample over its places (Ulyanov et al., 2016)"""
    momentum = 0.0 if momentum is None else momentum
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    dims = tuple(range(2, input.ndim))
    places = 1
    for d in dims:
        places *= input.shape[d]
    if places == 1:
        raise ShapeError(
            "instance_norm: expected more than 1 spatial element when training, got input of shape "
            f"{list(input.shape)}"
        )
    if running_mean is not None and running_var is not None:
        _track(input, running_mean, running_var, dims, momentum, places)
    return _scaled(_standardised(input, dims, eps), weight, bias)


def _track(
    input: Tensor, mean: Tensor, var: Tensor, dims: tuple, momentum: float, places: int
) -> None:
    """Move the running statistics towards those of this batch."""
    x = input.detach()
    batch_mean = x.mean(dims).mean(0)
    batch_var = ops.square(x - x.mean(dims, keepdim=True)).mean(dims).mean(0)
    mean.copy_(mean * (1 - momentum) + batch_mean * momentum)
    var.copy_(var * (1 - momentum) + batch_var * (momentum * places / (places - 1)))


def _standardised(x: Tensor, dims: tuple, eps: float) -> Tensor:
    centred = x - x.mean(dims, keepdim=True)
    return centred * ops.rsqrt(ops.square(centred).mean(dims, keepdim=True) + eps)


def _scaled(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    shape = (1, -1) + (1,) * (x.ndim - 2)
    if weight is not None:
        x = x * weight.reshape(shape)
    return x if bias is None else x + bias.reshape(shape)


def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """Divide by a power of the mean square over neighbouring channels (Krizhevsky et al., 2012)"""
    if input.ndim < 3:
        raise ShapeError(
            f"local_response_norm: input of shape {list(input.shape)} given; needed (N, C, L, ...)"
        )
    n, c = input.shape[:2]
    squares = ops.square(input).reshape(n, c, -1)
    padded = ops.pad(squares, (0, 0, size // 2, (size - 1) // 2))
    total = padded[:, :c]
    for i in range(1, size):
        total = total + padded[:, i : i + c]
    return input / ((total / size).reshape(input.shape) * alpha + k) ** beta
