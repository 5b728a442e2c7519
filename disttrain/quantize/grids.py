"""A grid: the scale and the zero point by which integers stand for numbers, for all elements of a
tensor or for each slice along one dimension (``axis``)."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from ..core import Tensor, wrap
from ..core.types import dtypes
from ..errors import ConfigError
from ..ops.primitives import quantization as prim
from ..ops.primitives.views import reshape
from .types import limits, qtype


class Grid:
    """``scale`` and ``zero``: numbers, or tensors of one number for each slice along ``axis``."""

    def __init__(self, scale: Any, zero: Any, axis: int | None = None) -> None:
        self.scale, self.zero, self.axis = scale, zero, axis

    @cached_property
    def tensors(self) -> tuple[Tensor, Tensor]:
        """Both as tensors: float32, and int32 unless zero points are fractions."""
        return _tensor(self.scale, np.float32), _tensor(self.zero, np.int32)

    def against(self, ndim: int) -> tuple[Tensor, Tensor]:
        """Both as they broadcast against a tensor of so many dimensions."""
        if self.axis is None:
            return self.tensors
        shape = [1] * ndim
        shape[self.axis] = -1
        scale, zero = self.tensors
        shape[self.axis] = scale.shape[0]
        return reshape(scale, shape=tuple(shape)), reshape(zero, shape=tuple(shape))

    def levels(self, x: Tensor, kind: qtype, low: int | None = None) -> Any:
        """The integers for ``x``, not below ``low``."""
        least, most = limits(kind)
        return prim.quantize(
            x, *self.against(x.ndim), low=least if low is None else low, high=most, dtype=kind.np
        )

    def numbers(self, levels: Tensor) -> Any:
        """What integers stand for, in float32."""
        return prim.dequantize(levels, *self.against(levels.ndim))

    def check(self, where: str, kind: qtype, shape: tuple) -> None:
        """Raise where this is no grid for a tensor of ``shape``."""
        if self.axis is None:
            least, most = limits(kind)
            if not self.scale > 0:
                raise ConfigError(f"{where}: scale={self.scale} given; needed a positive number")
            if not least <= self.zero <= most:
                raise ConfigError(
                    f"{where}: zero_point={self.zero} given; {kind!r} needs one from {least} to "
                    f"{most}"
                )
            return
        if not -len(shape) <= self.axis < len(shape):
            raise ConfigError(f"{where}: axis={self.axis} given for {len(shape)} dimensions")
        self.axis %= len(shape)
        for name, given in zip(("scales", "zero_points"), self.tensors):
            if tuple(given.shape) != (shape[self.axis],):
                raise ConfigError(
                    f"{where}: {name} of shape {list(given.shape)} given; dimension {self.axis} "
                    f"needs [{shape[self.axis]}]"
                )


def _tensor(value: Any, kind: type) -> Tensor:
    if not isinstance(value, Tensor):
        return wrap(np.array(value, kind))
    if kind is np.int32 and value.dtype.is_floating_point:
        return value.float()
    return value.to(dtypes.of(np.dtype(kind)))


__all__ = ["Grid"]
