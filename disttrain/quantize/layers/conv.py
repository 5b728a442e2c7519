"""Convolutions of quantized tensors by weights of 8 bits."""

from __future__ import annotations

from typing import Any

from ... import ops
from ...core import Tensor
from ...errors import ConfigError, ShapeError
from ...nn import functional as F
from ...nn.functional.common import per_dim
from ...ops.primitives import quantization as prim
from ..tensor import QuantizedTensor
from . import qat, weights
from .outputs import Output
from .weights import Int8Weight

_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _Conv(Output, Int8Weight):
    """A convolution whose results are rounded to the grid that calibration has found."""

    dims: int
    relu = False
    float_bias: Tensor | None

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1,
        padding: Any = 0, dilation: Any = 1, groups: int = 1, bias: bool = True,
        padding_mode: str = "zeros",
    ) -> None:  # fmt: skip
        super().__init__()
        name, n = type(self).__name__, self.dims
        if padding_mode not in _PADDING_MODES:
            known = ", ".join(_PADDING_MODES)
            raise ConfigError(f"{name}: padding_mode={padding_mode!r} given; needed one of {known}")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = per_dim(kernel_size, n, name, "kernel_size")
        self.stride = per_dim(stride, n, name, "stride")
        self.dilation = per_dim(dilation, n, name, "dilation")
        self.padding_mode = padding_mode
        self.padding = self._widths(padding, name)
        self.hold(
            weights.pretend((out_channels, in_channels // groups, *self.kernel_size)),
            with_sums=False,
        )
        self.register_buffer("float_bias", ops.zeros(out_channels) if bias else None)

    def _widths(self, padding: Any, name: str) -> tuple[int, ...]:
        if padding == "valid":
            return (0,) * self.dims
        if padding != "same":
            return tuple(per_dim(padding, self.dims, name, "padding"))
        total = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size)]
        if any(t % 2 for t in total):
            raise ConfigError(f"{name}: padding='same' of even kernels is not known; give numbers")
        return tuple(t // 2 for t in total)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> _Conv:
        """One for a layer that was calibrated, or trained with rounding (a normalisation that it
        was trained with is taken into it)."""
        layer = mod
        if isinstance(mod, qat.ConvBn):
            layer = mod.folded()
        elif not hasattr(mod, "weight"):  # several layers in a row
            layer = mod[0]
        observer = weights.weight_observer(mod, cls.__name__)
        out = cls(
            layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride, layer.padding,
            layer.dilation, layer.groups, layer.bias is not None, layer.padding_mode,
        )  # fmt: skip
        out.hold(weights.observed(layer.weight, observer), with_sums=False)
        out.float_bias = weights.bias_of(layer)
        out.take_grid(mod)
        return out

    def forward(self, input: Tensor) -> QuantizedTensor:
        x = self.quantized_input(input)
        if x.ndim not in (self.dims + 1, self.dims + 2):
            raise ShapeError(
                f"{self!r}: input of {x.ndim} dimensions given; needed (N, {self.in_channels}, "
                f"...) with {self.dims} more"
            )
        if x.shape[-self.dims - 1] != self.in_channels:
            raise ShapeError(
                f"{self!r}: input of shape {list(x.shape)} given; needed {self.in_channels} "
                "channels"
            )
        batched = x.ndim == self.dims + 2
        levels, padding = x.levels if batched else x.levels.unsqueeze(0), self.padding
        if self.padding_mode != "zeros":
            around = [width for width in reversed(padding) for _ in range(2)]
            levels, padding = F.pad(levels, around, self.padding_mode), (0,) * self.dims
        out = prim.integer_conv(
            levels, self.int8_weight, self.weight_scale, self.float_bias,
            x_scale=float(x.grid.scale), x_zero=int(x.grid.zero), stride=tuple(self.stride),
            padding=padding, dilation=tuple(self.dilation), groups=self.groups,
        )  # fmt: skip
        return self.rounded(out if batched else out.squeeze(0), self.relu)

    def weight(self) -> QuantizedTensor:
        """The weight as a quantized tensor."""
        return self.held()

    def bias(self) -> Tensor | None:
        """The bias, of floating-point numbers."""
        return self.float_bias

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"
        text += f", stride={self.stride}, {self.grid_text()}"
        usual = {"padding": (0,) * self.dims, "dilation": (1,) * self.dims, "groups": 1}
        for name, value in usual.items():
            if tuple(_listed(getattr(self, name))) != tuple(_listed(value)):
                text += f", {name}={getattr(self, name)}"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text if self.float_bias is not None else f"{text}, bias=False"

    def _get_name(self) -> str:
        return f"QuantizedConv{'ReLU' if self.relu else ''}{self.dims}d"


def _listed(value: Any) -> tuple:
    return value if isinstance(value, tuple) else (value,)


class Conv1d(_Conv):
    """A convolution in one dimension."""

    dims = 1


class Conv2d(_Conv):
    """A convolution in two dimensions."""

    dims = 2


class Conv3d(_Conv):
    """A convolution in three dimensions."""

    dims = 3


class ConvReLU1d(Conv1d):
    """The same with numbers below 0 made 0."""

    relu = True


class ConvReLU2d(Conv2d):
    """The same with numbers below 0 made 0."""

    relu = True


class ConvReLU3d(Conv3d):
    """The same with numbers below 0 made 0."""

    relu = True


__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvReLU1d", "ConvReLU2d", "ConvReLU3d"]
