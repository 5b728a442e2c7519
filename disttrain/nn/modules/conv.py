"""Convolutions, their transposes, and the lazy forms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...core import Tensor
from ...core.annotations import DeviceLike, DTypeLike, PerDim
from ...errors import ConfigError, ShapeError, cause
from .. import functional as F
from .. import init
from ..functional.common import per_dim
from ..module import Module
from ..parameter import Parameter, UninitializedParameter, empty
from .lazy import LazyMixin

_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _Conv(Module):
    """What all convolutions share: settings, parameters, their start, their text."""

    dims: int
    transposed = False
    weight: Any
    bias: Any

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: PerDim,
        stride: PerDim | None = 1,
        padding: PerDim | str = 0,
        dilation: PerDim = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        output_padding: PerDim = 0,
    ) -> None:
        super().__init__()
        name, n = type(self).__name__, self.dims
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = per_dim(kernel_size, n, name, "kernel_size")
        self.stride = per_dim(stride, n, name, "stride")
        named = isinstance(padding, str)
        self.padding: Any = padding if named else per_dim(padding, n, name, "padding")
        self.dilation = per_dim(dilation, n, name, "dilation")
        self.output_padding = per_dim(output_padding, n, name, "output_padding")
        self.padding_mode = padding_mode
        self._check(name)
        self._make_parameters(bias, device, dtype)
        self.reset_parameters()

    def _check(self, name: str) -> None:
        if self.groups < 1:
            raise ConfigError(
                f"{name}: groups={self.groups} given; groups must be a positive integer"
            )
        if self.in_channels % self.groups or self.out_channels % self.groups:
            raise ConfigError(
                f"{name}: in_channels={self.in_channels} and out_channels={self.out_channels} must "
                f"be divisible by groups={self.groups}"
            )
        if self.padding_mode not in _PADDING_MODES or (
            self.transposed and self.padding_mode != "zeros"
        ):
            known = f"padding_mode must be one of {', '.join(_PADDING_MODES)}"
            if self.transposed:
                known = 'Only "zeros" padding mode is supported'
            raise ConfigError(f"{name}: padding_mode={self.padding_mode!r} given; {known}")
        if isinstance(self.padding, str):
            if self.transposed or self.padding not in ("same", "valid"):
                raise ConfigError(
                    f"{name}: Invalid padding string {self.padding!r} given; needed numbers"
                    + ("" if self.transposed else ", 'same' or 'valid'")
                )
            if self.padding == "same" and any(s != 1 for s in self.stride):
                raise ConfigError(f"{name}: padding='same' needs stride 1, not {self.stride}")

    def _weight_shape(self) -> tuple[int, ...]:
        first, second = self.out_channels, self.in_channels
        if self.transposed:
            first, second = second, first
        return (first, second // self.groups, *self.kernel_size)

    def _make_parameters(
        self, bias: bool, device: DeviceLike | None, dtype: DTypeLike | None
    ) -> None:
        self.weight = Parameter(empty(self._weight_shape(), dtype, device))
        if bias:
            self.bias = Parameter(empty((self.out_channels,), dtype, device))
        else:
            self.register_parameter("bias", None)

    def reset_parameters(self) -> None:
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            if fan_in:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def _padded(self, input: Tensor) -> tuple[Tensor, Any]:
        """The input after padding by other than zeros, and the padding that is left to do."""
        if self.padding_mode == "zeros":
            return input, self.padding
        widths: list[int] = []
        for i in reversed(range(self.dims)):
            widths += self._side_widths(i)
        return F.pad(input, widths, self.padding_mode), 0

    def _side_widths(self, i: int) -> list[int]:
        if self.padding == "valid":
            return [0, 0]
        if self.padding == "same":
            total = self.dilation[i] * (self.kernel_size[i] - 1)
            return [total // 2, total - total // 2]
        return [self.padding[i], self.padding[i]]

    def _run(self, function: Any, input: Tensor) -> Tensor:
        try:
            x, padding = self._padded(input)
            return function(
                x, self.weight, self.bias, self.stride, padding, self.dilation, self.groups
            )
        except ShapeError as error:
            raise self._misfit(error, self._needed(), input) from cause(error)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """With another weight and bias than its own: subclasses of PyTorch's layers call it."""
        function = getattr(F, f"conv{self.dims}d")
        x, padding = self._padded(input)
        return function(x, weight, bias, self.stride, padding, self.dilation, self.groups)

    def _needed(self) -> str:
        places = ", ".join("DHW"[3 - self.dims :]) if self.dims > 1 else "L"
        return (
            f"(N, {self.in_channels}, {places}) or ({self.in_channels}, {places}), at least as "
            "large as the kernel"
        )

    def extra_repr(self) -> str:
        n = self.dims
        text = (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}"
        )
        for name, usual in (("padding", 0), ("dilation", 1), ("output_padding", 0)):
            value = getattr(self, name)
            if value != (usual,) * n:
                text += f", {name}={value}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        return text + (
            f", padding_mode={self.padding_mode}" if self.padding_mode != "zeros" else ""
        )


class Conv1d(_Conv):
    """(N, in_channels, L) to (N, out_channels, L')."""

    dims = 1

    def forward(self, input: Tensor) -> Tensor:
        return self._run(F.conv1d, input)


class Conv2d(_Conv):
    """(N, in_channels, H, W) to (N, out_channels, H', W')."""

    dims = 2

    def forward(self, input: Tensor) -> Tensor:
        return self._run(F.conv2d, input)


class Conv3d(_Conv):
    """(N, in_channels, D, H, W) to (N, out_channels, D', H', W')."""

    dims = 3

    def forward(self, input: Tensor) -> Tensor:
        return self._run(F.conv3d, input)


class _ConvTranspose(_Conv):
    """The adjoint of a convolution: makes large from small."""

    transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: PerDim,
        stride: PerDim | None = 1,
        padding: PerDim | str = 0,
        output_padding: PerDim = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: PerDim = 1,
        padding_mode: str = "zeros",
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias,
            padding_mode, device, dtype, output_padding,
        )  # fmt: skip

    def _transpose(
        self, function: Callable[..., Any], input: Tensor, output_size: object
    ) -> Tensor:
        try:
            extra = self._output_padding(input, output_size)
            return function(
                input, self.weight, self.bias, self.stride, self.padding, extra, self.groups,
                self.dilation,
            )  # fmt: skip
        except ShapeError as error:
            raise self._misfit(error, self._needed(), input) from cause(error)

    def _output_padding(self, input: Tensor, output_size: Any) -> tuple[int, ...]:
        """What must be added at the end of each dimension to reach ``output_size``."""
        if output_size is None:
            return self.output_padding
        wanted = tuple(output_size)[-self.dims :]
        extra = []
        for i, (size, want) in enumerate(zip(input.shape[-self.dims :], wanted, strict=True)):
            least = (size - 1) * self.stride[i] - 2 * self.padding[i]
            least += self.dilation[i] * (self.kernel_size[i] - 1) + 1
            if not least <= want < least + self.stride[i]:
                raise ShapeError(
                    f"output_size={wanted} given; dimension {i} must lie between {least} and "
                    f"{least + self.stride[i] - 1}"
                )
            extra.append(want - least)
        return tuple(extra)


class ConvTranspose1d(_ConvTranspose):
    """(N, in_channels, L) to (N, out_channels, L'), the adjoint of Conv1d."""

    dims = 1

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        return self._transpose(F.conv_transpose1d, input, output_size)


class ConvTranspose2d(_ConvTranspose):
    """(N, in_channels, H, W) to (N, out_channels, H', W'), the adjoint of Conv2d."""

    dims = 2

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        return self._transpose(F.conv_transpose2d, input, output_size)


class ConvTranspose3d(_ConvTranspose):
    """(N, in_channels, D, H, W) to (N, out_channels, D', H', W'), the adjoint of Conv3d."""

    dims = 3

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        return self._transpose(F.conv_transpose3d, input, output_size)


class _LazyConv(LazyMixin):
    """A convolution that learns ``in_channels`` from its first input."""

    out_channels: int
    weight: Any
    bias: Any

    def __init__(self, out_channels: int, kernel_size: PerDim, *args: Any, **kwargs: Any) -> None:
        self.__dict__["_wanted_out"] = out_channels
        super().__init__(0, 0, kernel_size, *args, **kwargs)  # type: ignore[call-arg]

    def _check(self, name: str) -> None:
        self.out_channels = self.__dict__.pop("_wanted_out", self.out_channels)
        super()._check(name)  # type: ignore[misc]

    def _make_parameters(
        self, bias: bool, device: DeviceLike | None, dtype: DTypeLike | None
    ) -> None:
        for name, wanted in (("weight", True), ("bias", bias)):
            made = UninitializedParameter(device=device, dtype=dtype) if wanted else None
            self.register_parameter(name, made)  # type: ignore[attr-defined]

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params():
            super().reset_parameters()  # type: ignore[misc]

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        axis = input.ndim - self.dims - 1  # type: ignore[attr-defined]
        self.in_channels = input.shape[axis]
        self._check(type(self).__name__)
        if not self.has_uninitialized_params():
            return
        self.weight.materialize(self._weight_shape())  # type: ignore[attr-defined]
        if self.bias is not None:
            self.bias.materialize((self.out_channels,))
        self.reset_parameters()


class LazyConv1d(_LazyConv, Conv1d):
    """A Conv1d that learns ``in_channels`` from its first input."""

    cls_to_become = Conv1d


class LazyConv2d(_LazyConv, Conv2d):
    """A Conv2d that learns ``in_channels`` from its first input."""

    cls_to_become = Conv2d


class LazyConv3d(_LazyConv, Conv3d):
    """A Conv3d that learns ``in_channels`` from its first input."""

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyConv, ConvTranspose1d):
    """A ConvTranspose1d that learns ``in_channels`` from its first input."""

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConv, ConvTranspose2d):
    """A ConvTranspose2d that learns ``in_channels`` from its first input."""

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyConv, ConvTranspose3d):
    """A ConvTranspose3d that learns ``in_channels`` from its first input."""

    cls_to_become = ConvTranspose3d
