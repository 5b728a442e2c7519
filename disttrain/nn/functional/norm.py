"""Normalisations."""

from __future__ import annotations

from ... import ops
from ...core import Tensor
from ...core.annotations import Dims
from ...core.types import dtypes
from ...core.types.casting import computes_in
from ...errors import ConfigError, ShapeError
from ...ops.functions.args import in_float32, kinds
from ...ops.functions.views.memory_formats import following


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
    out = ops.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    return following(out, input)


def layer_norm(
    input: Tensor,
    normalized_shape: Dims,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise over the last dimensions, those of ``normalized_shape`` (Ba et al., 2016)"""
    return ops.layer_norm(input, normalized_shape, weight, bias, eps)


def rms_norm(
    input: Tensor, normalized_shape: Dims, weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Divide by the root mean square over the last dimensions (Zhang, Sennrich, 2019)"""
    return ops.rms_norm(input, normalized_shape, weight, eps)


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each sample over groups of channels (Wu, He, 2018)"""
    size = input.shape
    if len(size) > 1 and size[0] * size[1] == num_groups and all(n == 1 for n in size[2:]):
        raise ConfigError(
            "group_norm: Expected more than 1 value per channel when training, got input size "
            f"{list(size)} in {num_groups} groups"
        )
    return following(ops.group_norm(input, num_groups, weight, bias, eps), input)


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
    return ops.instance_norm(
        input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps
    )


def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """Divide by a power of the mean square over neighbouring channels (Krizhevsky et al., 2012)"""
    if input.ndim < 3:
        raise ShapeError(
            f"local_response_norm: input of shape {list(input.shape)} given; needed (N, C, L, ...)"
        )
    if input.dtype is not dtypes.int64:
        kinds("local_response_norm", "fV", input)
    if not input.numel():
        return input
    normalized = normalized_images if input.ndim > 3 else _by_neighbours
    return normalized(input, size, alpha, beta, k)


@computes_in("own")
def normalized_images(input: Tensor, size: int, alpha: float, beta: float, k: float) -> Tensor:
    """``local_response_norm`` of images and volumes, which autocast of the CPU knows."""
    return _by_neighbours(input, size, alpha, beta, k)


@in_float32
def _by_neighbours(input: Tensor, size: int, alpha: float, beta: float, k: float) -> Tensor:
    n, c = input.shape[:2]
    squares = ops.square(input).reshape(n, c, -1)
    padded = ops.pad(squares, (0, 0, size // 2, (size - 1) // 2))
    total = padded[:, :c]
    for i in range(1, size):
        total = total + padded[:, i : i + c]
    return input / ((total / size).reshape(input.shape) * alpha + k) ** beta
