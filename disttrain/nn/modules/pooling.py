"""Pooling as modules."""

from __future__ import annotations

from typing import Any

from ...core import Tensor
from ...core.annotations import PerDim
from .. import functional as F
from ..module import Module


class _MaxPool(Module):
    """Settings of a maximum over windows; stride defaults to the kernel size."""

    _shown_settings = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")

    def __init__(
        self,
        kernel_size: PerDim,
        stride: PerDim | None = None,
        padding: PerDim | str = 0,
        dilation: PerDim = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding, self.dilation = padding, dilation
        self.return_indices, self.ceil_mode = return_indices, ceil_mode

    def _settings(self) -> tuple:
        sizes = (self.kernel_size, self.stride, self.padding, self.dilation)
        return (*sizes, self.ceil_mode, self.return_indices)


class MaxPool1d(_MaxPool):
    """The largest value of each window of (N, C, L)."""

    def forward(self, input: Tensor) -> Any:
        return F.max_pool1d(input, *self._settings())


class MaxPool2d(_MaxPool):
    """The largest value of each window of (N, C, H, W)."""

    def forward(self, input: Tensor) -> Any:
        return F.max_pool2d(input, *self._settings())


class MaxPool3d(_MaxPool):
    """The largest value of each window of (N, C, D, H, W)."""

    def forward(self, input: Tensor) -> Any:
        return F.max_pool3d(input, *self._settings())


class AvgPool1d(Module):
    """The mean of each window of (N, C, L)."""

    _shown_settings = ("kernel_size", "stride", "padding")

    def __init__(
        self,
        kernel_size: PerDim,
        stride: PerDim | None = None,
        padding: PerDim | str = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = self._size(kernel_size)
        self.stride = self._size(kernel_size if stride is None else stride)
        self.padding, self.ceil_mode = self._size(padding), ceil_mode
        self.count_include_pad = count_include_pad

    @staticmethod
    def _size(value: object) -> Any:
        return value if isinstance(value, tuple) else (value,)

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool1d(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode,
            self.count_include_pad,
        )  # fmt: skip


class AvgPool2d(AvgPool1d):
    """The mean of each window of (N, C, H, W)."""

    def __init__(
        self,
        kernel_size: PerDim,
        stride: PerDim | None = None,
        padding: PerDim | str = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad)
        self.divisor_override = divisor_override

    @staticmethod
    def _size(value: object) -> Any:
        return value

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool2d(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode,
            self.count_include_pad, self.divisor_override,
        )  # fmt: skip


class AvgPool3d(AvgPool2d):
    """The mean of each window of (N, C, D, H, W)."""

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool3d(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode,
            self.count_include_pad, self.divisor_override,
        )  # fmt: skip


class _Adaptive(Module):
    """Pooling to a wanted output size."""

    _shown_settings = ("output_size",)

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size


class _AdaptiveMax(_Adaptive):
    """The same for maxima, whose places may be asked for."""

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices


class AdaptiveAvgPool1d(_Adaptive):
    """Means over ``output_size`` regions of (N, C, L)."""

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(_Adaptive):
    """Means over regions of (N, C, H, W)."""

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(input, self.output_size)


class AdaptiveAvgPool3d(_Adaptive):
    """Means over regions of (N, C, D, H, W)."""

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool3d(input, self.output_size)


class AdaptiveMaxPool1d(_AdaptiveMax):
    """The largest values of ``output_size`` regions of (N, C, L)."""

    def forward(self, input: Tensor) -> Any:
        return F.adaptive_max_pool1d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool2d(_AdaptiveMax):
    """The largest values of regions of (N, C, H, W)."""

    def forward(self, input: Tensor) -> Any:
        return F.adaptive_max_pool2d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool3d(_AdaptiveMax):
    """The largest values of regions of (N, C, D, H, W)."""

    def forward(self, input: Tensor) -> Any:
        return F.adaptive_max_pool3d(input, self.output_size, self.return_indices)
