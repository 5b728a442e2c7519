"""Convolutions in one to three dimensions, transposed ones, and unfold / fold. Torch's names.

Arguments are checked here; the arithmetic and its derivatives are in ``convolve``.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from ....context import SLOW, thread
from ....core.annotations import PerDim
from ....core.tensor import Tensor
from ....core.types.casting import computes_in
from ....errors import ConfigError, ShapeError
from ....symbolic import as_int
from ...primitives import windows as win
from ...primitives.conv import conv, conv_input_grad, fold_columns, unfold_columns
from ...primitives.views import pad_constant, permute, reshape
from ...promotion import same_type
from ..args import kinds
from ..args import tensor as as_input
from ..views.memory_formats import following


def per_dim(value: Any, n: int, where: str, name: str) -> tuple[int, ...]:
    """``value`` for each of ``n`` spatial dimensions: one number for all, or ``n`` of them."""
    if isinstance(value, (int, np.integer)):
        return (as_int(value),) * n
    value = tuple(as_int(v) for v in value)
    if len(value) == 1:
        value = value * n
    if len(value) != n:
        raise ShapeError(
            f"{where}: {name}={value} given; needed one number or {n}, one per dimension"
        )
    return value


def _types(where: str, input: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    same_type(where, input, weight, bias)
    kinds(where, "iufVc", input)


def _fits(
    where: str, input: tuple, weight: tuple, bias: tuple | None, channels: int, groups: int,
    **steps: tuple,
) -> None:  # fmt: skip
    """Raise where arrays of these shapes do not go together, or steps are none."""
    if len(weight) != len(input):
        raise ShapeError(
            f"{where}: weight of shape {list(weight)} given for an input of shape "
            f"{list(input)}; both need {len(input)} dimensions"
        )
    if groups < 1 or weight[0] % groups:
        raise ConfigError(
            f"{where}: groups={groups} given; it must divide weight.shape[0]={weight[0]}"
        )
    if input[1] != channels:
        raise ShapeError(
            f"{where}: input of shape {list(input)} has {input[1]} channels; needed "
            f"{channels}, because the weight has shape {list(weight)} and groups={groups}"
        )
    if bias is not None and tuple(bias) != (weight[0],):
        raise ShapeError(f"{where}: bias of shape {list(bias)} given; needed [{weight[0]}]")
    for name, given in steps.items():
        least = 0 if name == "padding" else 1
        if min(given) < least:
            kind = "non-positive" if least else "negative"
            raise ShapeError(f"{where}: {name}={given} given; {kind} {name} is not supported")


def _windows_fit(
    where: str, input: tuple, weight: tuple, bias: tuple | None, groups: int,
    stride: tuple, padding: tuple, dilation: tuple,
) -> None:  # fmt: skip
    """``_fits`` of a convolution, whose kernel is no larger than its input."""
    channels = weight[1] * groups if len(weight) > 1 else 0
    _fits(where, input, weight, bias, channels, groups, stride=stride, padding=padding,
          dilation=dilation)  # fmt: skip
    if any(n < 1 for n in win.out_sizes(input[2:], weight[2:], stride, padding, dilation)):
        raise ShapeError(
            f"{where}: input of shape {list(input)} with padding {padding} is smaller than "
            f"the kernel {list(weight[2:])} with dilation {dilation}; needed an input at least as "
            "large"
        )


_known_to_fit = lru_cache(512)(_windows_fit)  # of shapes that came before nothing is asked again


def _conv_nd(
    n: int, input: Tensor, weight: Tensor, bias: Tensor | None, stride: PerDim, padding: PerDim,
    dilation: PerDim, groups: int,
) -> Tensor:  # fmt: skip
    where = f"conv{n}d"
    input = _batched(where, n, input)
    unbatched = input.ndim == n + 1
    if unbatched:
        input = reshape(input, shape=(1, *input.shape))
    stride = per_dim(stride, n, where, "stride")
    dilation = per_dim(dilation, n, where, "dilation")
    if isinstance(padding, str):
        input, padding = _named_padding(where, input, weight, padding, stride, dilation)
    else:
        padding = per_dim(padding, n, where, "padding")
    _types(where, input, weight, bias)
    check: Any = _known_to_fit if thread.mode != SLOW else _windows_fit
    check(where, tuple(input.meta()[0]), tuple(weight.meta()[0]),
          None if bias is None else tuple(bias.meta()[0]), groups, stride, padding,
          dilation)  # fmt: skip
    out = conv(
        input, weight, bias, stride=stride, padding=padding, dilation=dilation, groups=groups
    )
    out = following(out, input, weight)
    return reshape(out, shape=tuple(out.shape)[1:]) if unbatched else out


def _batched(where: str, n: int, input: Tensor) -> Tensor:
    if as_input(input, where).ndim not in (n + 1, n + 2):
        raise ShapeError(
            f"{where}: Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to {where}, but "
            f"got input of size: {list(input.shape)}; needed channels and {n} spatial dimensions"
        )
    return input


def _named_padding(
    where: str, input: Tensor, weight: Tensor, name: str, stride: tuple, dilation: tuple
) -> tuple[Tensor, tuple]:
    """The padding that "valid" or "same" means, and the input padded where it is lopsided."""
    n = len(stride)
    if name == "valid":
        return input, (0,) * n
    if name != "same":
        raise ConfigError(f"{where}: padding={name!r} given; needed numbers, 'valid' or 'same'")
    if any(s != 1 for s in stride):
        raise ConfigError(f"{where}: padding='same' is not defined for stride {stride}; needed 1")
    total = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
    if any(t % 2 for t in total):
        input = pad_constant(input, widths=((0, 0), (0, 0), *((0, t % 2) for t in total)))
    return input, tuple(t // 2 for t in total)


def conv1d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: PerDim = 1,
    padding: PerDim = 0, dilation: PerDim = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Convolution of (N, C, L) with weights (O, C / groups, K).

    ``padding``: numbers, "valid" (none) or "same" (the output has the input's size).
    """
    return _conv_nd(1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: PerDim = 1,
    padding: PerDim = 0, dilation: PerDim = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Convolution of (N, C, H, W) with weights (O, C / groups, KH, KW)."""
    return _conv_nd(2, input, weight, bias, stride, padding, dilation, groups)


def conv3d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: PerDim = 1,
    padding: PerDim = 0, dilation: PerDim = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Convolution of (N, C, D, H, W) with weights (O, C / groups, KD, KH, KW)."""
    return _conv_nd(3, input, weight, bias, stride, padding, dilation, groups)


def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """Convolution of sequences (L, N, C) with weights (K, C, O), as (L', N, O)."""
    for name, t, ndim in (("input", input, 3), ("weight", weight, 3), ("bias", bias, 1)):
        if as_input(t, "conv_tbc", name).ndim != ndim:
            raise ShapeError(
                f"conv_tbc: {name} of shape {list(t.shape)} given; needed {ndim} dimensions"
            )
    out = conv1d(permute(input, dims=(1, 2, 0)), permute(weight, dims=(2, 1, 0)), bias, 1, pad)
    return permute(out, dims=(2, 0, 1))


@computes_in("lower")
def _transposed(
    n: int, input: Tensor, weight: Tensor, bias: Tensor | None, stride: PerDim, padding: PerDim,
    output_padding: PerDim, groups: int, dilation: PerDim,
) -> Tensor:  # fmt: skip
    where = f"conv_transpose{n}d"
    input = _batched(where, n, input)
    unbatched = input.ndim == n + 1
    if unbatched:
        input = reshape(input, shape=(1, *input.shape))
    _types(where, input, weight, bias)
    stride = per_dim(stride, n, where, "stride")
    padding = per_dim(padding, n, where, "padding")
    extra = per_dim(output_padding, n, where, "output_padding")
    dilation = per_dim(dilation, n, where, "dilation")
    _fits(where, tuple(input.shape), tuple(weight.shape), None, weight.shape[0], groups,
          stride=stride, padding=padding, dilation=dilation)  # fmt: skip
    if any(e >= max(s, d) for e, s, d in zip(extra, stride, dilation, strict=True)):
        raise ConfigError(
            f"{where}: output_padding={extra} given; it must be smaller than stride={stride} or "
            f"dilation={dilation}"
        )
    size = tuple(
        (m - 1) * s - 2 * p + d * (k - 1) + e + 1
        for m, s, p, d, k, e in zip(
            input.shape[2:], stride, padding, dilation, weight.shape[2:], extra, strict=True
        )
    )
    if any(n < 1 for n in size):
        raise ShapeError(
            f"{where}: input of shape {list(input.shape)} with padding {padding} leaves an output "
            f"of {list(size)}; needed at least 1 everywhere"
        )
    out = conv_input_grad(
        input, weight, stride=stride, padding=padding, dilation=dilation, groups=groups, size=size
    )
    if bias is not None:
        out = out + reshape(bias, shape=(-1, *(1,) * n))
    out = following(out, input, weight)
    return reshape(out, shape=tuple(out.shape)[1:]) if unbatched else out


def conv_transpose1d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: PerDim = 1,
    padding: PerDim = 0, output_padding: PerDim = 0, groups: int = 1, dilation: PerDim = 1,
) -> Tensor:  # fmt: skip
    """The adjoint of ``conv1d``: (N, C, L) with weights (C, O / groups, K)."""
    return _transposed(1, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: PerDim = 1,
    padding: PerDim = 0, output_padding: PerDim = 0, groups: int = 1, dilation: PerDim = 1,
) -> Tensor:  # fmt: skip
    """The adjoint of ``conv2d``: (N, C, H, W) with weights (C, O / groups, KH, KW)."""
    return _transposed(2, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose3d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: PerDim = 1,
    padding: PerDim = 0, output_padding: PerDim = 0, groups: int = 1, dilation: PerDim = 1,
) -> Tensor:  # fmt: skip
    """The adjoint of ``conv3d``: (N, C, D, H, W) with weights (C, O / groups, KD, KH, KW)."""
    return _transposed(3, input, weight, bias, stride, padding, output_padding, groups, dilation)


def _window(where: str, kernel: PerDim, dilation: PerDim, padding: PerDim, stride: PerDim) -> dict:
    return {
        "kernel": per_dim(kernel, 2, where, "kernel_size"),
        "dilation": per_dim(dilation, 2, where, "dilation"),
        "padding": per_dim(padding, 2, where, "padding"),
        "stride": per_dim(stride, 2, where, "stride"),
    }


def unfold(
    input: Tensor,
    kernel_size: PerDim,
    dilation: PerDim = 1,
    padding: PerDim = 0,
    stride: PerDim = 1,
) -> Tensor:
    """Windows as columns: (N, C, H, W) to (N, C KH KW, L)."""
    if _batched("unfold", 2, input).ndim == 3:
        out = unfold(
            reshape(input, shape=(1, *input.shape)), kernel_size, dilation, padding, stride
        )
        return reshape(out, shape=tuple(out.shape)[1:])
    kinds("unfold", "bfVc", input)
    how = _window("unfold", kernel_size, dilation, padding, stride)
    if any(n < 1 for n in win.out_sizes(tuple(input.shape[2:]), **how)):
        raise ShapeError(
            f"unfold: input of shape {list(input.shape)} with padding {how['padding']} is smaller "
            f"than the kernel {how['kernel']} with dilation {how['dilation']}"
        )
    return unfold_columns(input, **how)


def fold(
    input: Tensor, output_size: PerDim, kernel_size: PerDim, dilation: PerDim = 1,
    padding: PerDim = 0, stride: PerDim = 1,
) -> Tensor:  # fmt: skip
    """The adjoint of ``unfold``: columns (N, C KH KW, L) summed into (N, C, H, W)."""
    size = per_dim(output_size, 2, "fold", "output_size")
    how = _window("fold", kernel_size, dilation, padding, stride)
    places = math.prod(win.out_sizes(size, **how))
    count = math.prod(how["kernel"])
    if input.ndim not in (2, 3) or input.shape[-1] != places or input.shape[-2] % count:
        raise ShapeError(
            f"fold: input of shape {list(input.shape)} given; for output_size {size} and kernel "
            f"{how['kernel']} needed (N, C * {count}, {places}), or that without N"
        )
    if input.ndim == 2:
        out = fold_columns(reshape(input, shape=(1, *input.shape)), size=size, **how)
        return reshape(out, shape=tuple(out.shape)[1:])
    return fold_columns(input, size=size, **how)


__all__ = [
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_tbc",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "fold",
    "unfold",
]
