"""Gradients of convolutions with respect to their input and their weight. Torch's names.

They are differentiable themselves, as the primitives they call are.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..core.annotations import PerDim
from ..core.tensor import Tensor
from ..errors import ConfigError, ShapeError
from ..ops.functions.nn.conv import per_dim
from ..ops.primitives import windows as win
from ..ops.primitives.conv import conv_input_grad, conv_weight_grad
from ..ops.promotion import same_type


def _settings(
    where: str, n: int, input_size: Sequence[int], weight_size: Sequence[int], grad: Tensor,
    stride: PerDim, padding: PerDim, dilation: PerDim, groups: int,
) -> dict:  # fmt: skip
    """The primitives' parameters, after the check that the three shapes are of one convolution."""
    sizes, weights = tuple(input_size), tuple(weight_size)
    for what, shape in (("input", sizes), ("weight", weights), ("grad_output", tuple(grad.shape))):
        if len(shape) != n + 2:
            raise ShapeError(
                f"{where}: {what} of shape {list(shape)} given; needed {n + 2} dimensions"
            )
    if groups < 1 or weights[0] % groups or sizes[1] != weights[1] * groups:
        raise ConfigError(
            f"{where}: groups={groups} given for an input of shape {list(sizes)} and a weight of "
            f"shape {list(weights)}; it must divide weight.shape[0], and input.shape[1] must be "
            "groups * weight.shape[1]"
        )
    how = {
        "stride": per_dim(stride, n, where, "stride"),
        "padding": per_dim(padding, n, where, "padding"),
        "dilation": per_dim(dilation, n, where, "dilation"),
    }
    out = win.out_sizes(sizes[2:], weights[2:], how["stride"], how["padding"], how["dilation"])
    needed = (sizes[0], weights[0], *out)
    if tuple(grad.shape) != needed:
        raise ShapeError(
            f"{where}: grad_output of shape {list(grad.shape)} given; needed that of the "
            f"convolution's output, {list(needed)}"
        )
    return {**how, "groups": groups}


def _input(
    n: int, input_size: Sequence[int], weight: Tensor, grad: Tensor, stride: PerDim,
    padding: PerDim, dilation: PerDim, groups: int,
) -> Tensor:  # fmt: skip
    where = f"conv{n}d_input"
    same_type(where, grad, weight)
    settings = _settings(
        where, n, input_size, weight.shape, grad, stride, padding, dilation, groups
    )
    return conv_input_grad(grad, weight, size=tuple(input_size)[2:], **settings)


def _weight(
    n: int, input: Tensor, weight_size: Sequence[int], grad: Tensor, stride: PerDim,
    padding: PerDim, dilation: PerDim, groups: int,
) -> Tensor:  # fmt: skip
    where = f"conv{n}d_weight"
    same_type(where, grad, input)
    settings = _settings(
        where, n, input.shape, weight_size, grad, stride, padding, dilation, groups
    )
    return conv_weight_grad(grad, input, kernel=tuple(weight_size)[2:], **settings)


def conv1d_input(
    input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: PerDim = 1,
    padding: PerDim = 0, dilation: PerDim = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Gradient (N, C, L) of ``conv1d`` with respect to its input.

    ``weight`` (O, C / groups, K) and ``grad_output`` (N, O, L') have one dtype, which is the
    result's. Raises ``ShapeError`` where the shapes are not of one convolution.
    """
    return _input(1, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv1d_weight(
    input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: PerDim = 1,
    padding: PerDim = 0, dilation: PerDim = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Gradient (O, C / groups, K) of ``conv1d`` with respect to its weight.

    ``input`` (N, C, L) and ``grad_output`` (N, O, L') have one dtype, which is the result's.
    Raises ``ShapeError`` where the shapes are not of one convolution.
    """
    return _weight(1, input, weight_size, grad_output, stride, padding, dilation, groups)


def conv2d_input(
    input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: PerDim = 1,
    padding: PerDim = 0, dilation: PerDim = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Gradient (N, C, H, W) of ``conv2d`` with respect to its input; as ``conv1d_input``."""
    return _input(2, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv2d_weight(
    input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: PerDim = 1,
    padding: PerDim = 0, dilation: PerDim = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Gradient (O, C / groups, KH, KW) of ``conv2d`` by its weight; as ``conv1d_weight``."""
    return _weight(2, input, weight_size, grad_output, stride, padding, dilation, groups)


def conv3d_input(
    input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: PerDim = 1,
    padding: PerDim = 0, dilation: PerDim = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Gradient (N, C, D, H, W) of ``conv3d`` with respect to its input; as ``conv1d_input``."""
    return _input(3, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv3d_weight(
    input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: PerDim = 1,
    padding: PerDim = 0, dilation: PerDim = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Gradient (O, C / groups, KD, KH, KW) of ``conv3d`` by its weight; as ``conv1d_weight``."""
    return _weight(3, input, weight_size, grad_output, stride, padding, dilation, groups)
