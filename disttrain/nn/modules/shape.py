"""Modules that change shapes: flatten, resize, pad, move channels to pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core import Tensor
from ...core.annotations import PerDim
from ...errors import ShapeError, cause
from .. import functional as F
from ..functional.common import per_dim
from ..module import Module


class Flatten(Module):
    """Dimensions ``start_dim`` to ``end_dim`` become one."""

    _shown_settings = ("start_dim", "end_dim")

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)


class Unflatten(Module):
    """Dimension ``dim`` becomes several, of ``unflattened_size`` (one may be -1)."""

    _shown_settings = ("dim", "unflattened_size")

    def __init__(self, dim: int, unflattened_size: Any) -> None:
        super().__init__()
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, input: Tensor) -> Tensor:
        shape = tuple(input.shape)
        dim = self.dim % len(shape)
        try:
            return input.reshape(shape[:dim] + self.unflattened_size + shape[dim + 1 :])
        except ShapeError as error:
            needed = f"a dimension {self.dim} that {self.unflattened_size} fits"
            raise self._misfit(error, needed, input) from cause(error)


class Upsample(Module):
    """Resizes the spatial dimensions of (N, C, ...); see ``functional.interpolate``."""

    def __init__(
        self,
        size: Any = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.size, self.mode, self.align_corners = size, mode, align_corners
        self.scale_factor: Any = scale_factor
        if isinstance(scale_factor, (tuple, list)):
            self.scale_factor = tuple(float(f) for f in scale_factor)
        elif scale_factor is not None:
            self.scale_factor = float(scale_factor)  # type: ignore[arg-type]
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.interpolate(
            input, self.size, self.scale_factor, self.mode, self.align_corners,
            self.recompute_scale_factor,
        )  # fmt: skip

    def extra_repr(self) -> str:
        what = "size" if self.scale_factor is None else "scale_factor"
        return f"{what}={getattr(self, what)}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """``Upsample`` by repeating pixels."""

    def __init__(
        self,
        size: int | Sequence[int] | None = None,
        scale_factor: float | Sequence[float] | None = None,
    ) -> None:
        super().__init__(size, scale_factor, "nearest")


class UpsamplingBilinear2d(Upsample):
    """``Upsample`` bilinearly, corners aligned."""

    def __init__(
        self,
        size: int | Sequence[int] | None = None,
        scale_factor: float | Sequence[float] | None = None,
    ) -> None:
        super().__init__(size, scale_factor, "bilinear", True)


class ChannelShuffle(Module):
    """Interleaves the channels of ``groups`` groups of (N, C, ...)."""

    _shown_settings = ("groups",)

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        return F.channel_shuffle(input, self.groups)


class PixelShuffle(Module):
    """(..., C r², H, W) to (..., C, H r, W r)."""

    _shown_settings = ("upscale_factor",)

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_shuffle(input, self.upscale_factor)


class PixelUnshuffle(Module):
    """The inverse of PixelShuffle."""

    _shown_settings = ("downscale_factor",)

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_unshuffle(input, self.downscale_factor)


class Unfold(Module):
    """Windows of (N, C, H, W) as columns (N, C KH KW, L)."""

    _shown_settings = ("kernel_size", "dilation", "padding", "stride")

    def __init__(
        self,
        kernel_size: PerDim,
        dilation: PerDim = 1,
        padding: PerDim | str = 0,
        stride: PerDim | None = 1,
    ) -> None:
        super().__init__()
        self.kernel_size, self.dilation = kernel_size, dilation
        self.padding, self.stride = padding, stride

    def _settings(self) -> tuple:
        return self.kernel_size, self.dilation, self.padding, self.stride

    def forward(self, input: Tensor) -> Tensor:
        return F.unfold(input, *self._settings())


class Fold(Unfold):
    """The adjoint of Unfold: columns summed into an image of ``output_size``."""

    def __init__(
        self, output_size: Any, kernel_size: PerDim, dilation: PerDim = 1,
        padding: PerDim | str = 0, stride: PerDim | None = 1,
    ) -> None:  # fmt: skip
        super().__init__(kernel_size, dilation, padding, stride)
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        return F.fold(input, self.output_size, *self._settings())

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}, {super().extra_repr()}"


# --- padding ----------------------------------------------------------------------------------
class _Pad(Module):
    """Padding of the last ``dims`` dimensions: one width for all sides, or one per side."""

    dims: int
    mode = "constant"
    value = 0.0

    def __init__(self, padding: PerDim | str) -> None:
        super().__init__()
        self.padding = per_dim(padding, 2 * self.dims, type(self).__name__, "padding")

    def forward(self, input: Tensor) -> Tensor:
        value = self.value if self.mode == "constant" else None
        return F.pad(input, self.padding, self.mode, value)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad1d(_Pad):
    """Zeros around the last dimension."""

    dims = 1


class ZeroPad2d(_Pad):
    """Zeros around the last two dimensions."""

    dims = 2


class ZeroPad3d(_Pad):
    """Zeros around the last three dimensions."""

    dims = 3


class _ConstantPad(_Pad):
    def __init__(self, padding: PerDim | str, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad):
    """``value`` around the last dimension."""

    dims = 1


class ConstantPad2d(_ConstantPad):
    """``value`` around the last two dimensions."""

    dims = 2


class ConstantPad3d(_ConstantPad):
    """``value`` around the last three dimensions."""

    dims = 3


class ReflectionPad1d(_Pad):
    """Mirrors the last dimension at its ends."""

    dims, mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    """Mirrors the last two dimensions at their ends."""

    dims, mode = 2, "reflect"


class ReflectionPad3d(_Pad):
    """Mirrors the last three dimensions at their ends."""

    dims, mode = 3, "reflect"


class ReplicationPad1d(_Pad):
    """Repeats the ends of the last dimension."""

    dims, mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    """Repeats the ends of the last two dimensions."""

    dims, mode = 2, "replicate"


class ReplicationPad3d(_Pad):
    """Repeats the ends of the last three dimensions."""

    dims, mode = 3, "replicate"


class CircularPad1d(_Pad):
    """Wraps the last dimension around."""

    dims, mode = 1, "circular"


class CircularPad2d(_Pad):
    """Wraps the last two dimensions around."""

    dims, mode = 2, "circular"


class CircularPad3d(_Pad):
    """Wraps the last three dimensions around."""

    dims, mode = 3, "circular"
