"""LayerNorm, RMSNorm, GroupNorm: normalisation within a sample."""

from __future__ import annotations

from typing import Any

from ...core import Tensor
from ...core.annotations import DeviceLike, Dims, DTypeLike
from ...errors import ConfigError, ShapeError, cause
from .. import functional as F
from .. import init
from ..module import Module
from ..parameter import Parameter, empty


class LayerNorm(Module):
    """Normalises over the last dimensions, those of ``normalized_shape``."""

    def __init__(
        self,
        normalized_shape: Dims,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _as_shape(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        for name, wanted in (("weight", elementwise_affine), ("bias", elementwise_affine and bias)):
            value = Parameter(empty(self.normalized_shape, dtype, device)) if wanted else None
            self.register_parameter(name, value)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        try:
            return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)
        except ShapeError as error:
            needed = f"last dimensions of {list(self.normalized_shape)}"
            raise self._misfit(error, needed, input) from cause(error)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """Divides by the root mean square over the last dimensions. ``eps`` None: that of the type."""

    def __init__(
        self,
        normalized_shape: Dims,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _as_shape(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        value = (
            Parameter(empty(self.normalized_shape, dtype, device)) if elementwise_affine else None
        )
        self.register_parameter("weight", value)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        try:
            return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)
        except ShapeError as error:
            needed = f"last dimensions of {list(self.normalized_shape)}"
            raise self._misfit(error, needed, input) from cause(error)

    def extra_repr(self) -> str:
        text = f"{self.normalized_shape}, eps={self.eps}"
        return f"{text}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(Module):
    """Normalises each sample over groups of channels: (N, C, ...)."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_groups < 1 or num_channels % num_groups:
            raise ConfigError(
                f"GroupNorm: num_channels={num_channels} must be divisible by "
                f"num_groups={num_groups}"
            )
        self.num_groups, self.num_channels = num_groups, num_channels
        self.eps, self.affine = eps, affine
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            value = Parameter(empty((num_channels,), dtype, device)) if wanted else None
            self.register_parameter(name, value)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        shape = input.shape
        if len(shape) < 2 or shape[1] != self.num_channels:
            raise ShapeError(
                f"{self!r}: input of shape {list(shape)} given; needed "
                f"(N, {self.num_channels}, ...)"
            )
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class LocalResponseNorm(Module):
    """Normalises over ``size`` neighbouring channels."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(LocalResponseNorm):
    """``LocalResponseNorm`` under its older name, over an odd number of channels. (PyTorch's
    counts the first channel, too, for all that are further away than its window reaches.)"""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__(size, alpha, beta, k)

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim != 4:
            raise ShapeError(
                f"CrossMapLRN2d: expected input to be 4D; shape {list(input.shape)} given"
            )
        side = (self.size - 1) // 2
        squares = F.pad(input * input, (0, 0, 0, 0, side, side))
        sums = squares.unfold(1, 2 * side + 1, 1).sum(-1)
        return input * (sums * (self.alpha / self.size) + self.k).pow(-self.beta)


def _as_shape(shape: Any) -> tuple[int, ...]:
    return (int(shape),) if hasattr(shape, "__index__") else tuple(int(s) for s in shape)
