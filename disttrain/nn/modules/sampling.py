"""Other pooling as modules: powers, what undoes maxima, and windows of drawn places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core import Tensor
from ...core.annotations import PerDim
from ...errors import ConfigError
from .. import functional as F
from ..functional.common import per_dim
from ..module import Module


class _LPPool(Module):
    """Settings of a power average over windows."""

    _shown_settings = ("norm_type", "kernel_size", "stride", "ceil_mode")

    def __init__(
        self,
        norm_type: float,
        kernel_size: PerDim,
        stride: PerDim | None = None,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.norm_type, self.kernel_size = norm_type, kernel_size
        self.stride, self.ceil_mode = stride, ceil_mode

    def _settings(self) -> tuple:
        return float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode


class LPPool1d(_LPPool):
    """The ``norm_type``-th root of the sum of such powers in each window of (N, C, L)."""

    def forward(self, input: Tensor) -> Tensor:
        return F.lp_pool1d(input, *self._settings())


class LPPool2d(_LPPool):
    """The ``norm_type``-th root of the sum of such powers in each window of (N, C, H, W)."""

    def forward(self, input: Tensor) -> Tensor:
        return F.lp_pool2d(input, *self._settings())


class LPPool3d(_LPPool):
    """The ``norm_type``-th root of the sum of such powers in each window of (N, C, D, H, W)."""

    def forward(self, input: Tensor) -> Tensor:
        return F.lp_pool3d(input, *self._settings())


class _MaxUnpool(Module):
    """Settings of the pooling that is undone."""

    _shown_settings = ("kernel_size", "stride", "padding")
    _dims: int

    def __init__(
        self, kernel_size: PerDim, stride: PerDim | None = None, padding: PerDim = 0
    ) -> None:
        super().__init__()
        n, name = self._dims, type(self).__name__
        self.kernel_size = per_dim(kernel_size, n, name, "kernel_size")
        step = kernel_size if stride is None else stride
        self.stride = per_dim(step, n, name, "stride")
        self.padding = per_dim(padding, n, name, "padding")

    def _settings(self) -> tuple[tuple, tuple, tuple]:
        return self.kernel_size, self.stride, self.padding


class MaxUnpool1d(_MaxUnpool):
    """Values of (N, C, L) at the places from which ``MaxPool1d`` took them, zeros elsewhere."""

    _dims = 1

    def forward(
        self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None
    ) -> Tensor:
        return F.max_unpool1d(input, indices, *self._settings(), output_size)


class MaxUnpool2d(_MaxUnpool):
    """Values of (N, C, H, W) at the places from which ``MaxPool2d`` took them, zeros elsewhere."""

    _dims = 2

    def forward(
        self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None
    ) -> Tensor:
        return F.max_unpool2d(input, indices, *self._settings(), output_size)


class MaxUnpool3d(_MaxUnpool):
    """Values of (N, C, D, H, W) at the places from which ``MaxPool3d`` took them."""

    _dims = 3

    def forward(
        self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None
    ) -> Tensor:
        return F.max_unpool3d(input, indices, *self._settings(), output_size)


class _FractionalMaxPool(Module):
    """Settings of maxima over windows of drawn places (Graham 2015)."""

    _dims: int

    def __init__(
        self,
        kernel_size: PerDim,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        super().__init__()
        n, name = self._dims, type(self).__name__
        self.kernel_size = per_dim(kernel_size, n, name, "kernel_size")
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        if (output_size is None) == (output_ratio is None):
            raise ConfigError(
                f"{name}: needed one of output_size={output_size} and output_ratio={output_ratio}"
            )
        self.output_size = (
            None if output_size is None else per_dim(output_size, n, name, "output_size")
        )
        one = isinstance(output_ratio, (int, float))
        self.output_ratio = (output_ratio,) * n if one else output_ratio
        if self.output_ratio is not None and not all(0 < r < 1 for r in self.output_ratio):
            raise ConfigError(f"{name}: output_ratio must be between 0 and 1 (got {output_ratio})")

    def _settings(self) -> tuple:
        sizes = (self.kernel_size, self.output_size, self.output_ratio, self.return_indices)
        return (*sizes, self._random_samples)


class FractionalMaxPool2d(_FractionalMaxPool):
    """The largest values of windows of (N, C, H, W) that begin at drawn places."""

    _dims = 2

    def forward(self, input: Tensor) -> Any:
        return F.fractional_max_pool2d(input, *self._settings())


class FractionalMaxPool3d(_FractionalMaxPool):
    """The largest values of windows of (N, C, D, H, W) that begin at drawn places."""

    _dims = 3

    def forward(self, input: Tensor) -> Any:
        return F.fractional_max_pool3d(input, *self._settings())
