"""Linear, Bilinear, Identity, and the lazy form of Linear."""

from __future__ import annotations

import math
from typing import Any

from ... import ops
from ...core import Tensor
from ...core.annotations import DeviceLike, DTypeLike
from ...errors import ConfigError, ShapeError, cause
from .. import functional as F
from .. import init
from ..module import Module
from ..parameter import Parameter, UninitializedParameter, empty
from .lazy import LazyMixin


class Identity(Module):
    """Gives back its input; takes and ignores any arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


def _check_sizes(name: str, *sizes: int) -> None:
    for size in sizes:
        if isinstance(size, bool) or not hasattr(size, "__index__") or size < 0:
            raise ConfigError(f"{name}: sizes {sizes} given; needed integers of at least 0")


class Linear(Module):
    """x Wᵀ + b: (..., in_features) to (..., out_features).

    ``weight`` (out, in) and ``bias`` start uniform on ±1 / sqrt(in_features).
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        _check_sizes(type(self).__name__, in_features, out_features)
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(empty((out_features, in_features), dtype, device))
        if bias:
            self.bias = Parameter(empty((out_features,), dtype, device))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        own = self._parameters  # an attribute would cost half a microsecond more
        try:
            weight, bias = own["weight"], own["bias"]
        except KeyError:  # one of them is computed now, as weight normalisation does
            weight, bias = self.weight, self.bias
        try:
            return ops.linear(input, weight, bias)
        except ShapeError as error:
            needed = f"a last dimension of in_features={self.in_features}"
            raise self._misfit(error, needed, input) from cause(error)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


class LazyLinear(LazyMixin, Linear):
    """A Linear that learns ``in_features`` from its first input."""

    cls_to_become = Linear
    weight: Any
    bias: Any

    def __init__(
        self,
        out_features: int,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(0, 0, False, device, dtype)
        self.out_features = out_features
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def initialize_parameters(self, input: Tensor) -> None:
        self.in_features = input.shape[-1]
        if not self.has_uninitialized_params():
            return
        self.weight.materialize((self.out_features, self.in_features))
        if self.bias is not None:
            self.bias.materialize((self.out_features,))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.in_features:
            super().reset_parameters()


class Bilinear(Module):
    """x1ᵀ W_o x2 + b_o: (..., in1), (..., in2) to (..., out)."""

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        _check_sizes(type(self).__name__, in1_features, in2_features, out_features)
        if in1_features < 1:
            raise ConfigError(f"Bilinear: in1_features={in1_features} given; needed at least 1")
        self.in1_features, self.in2_features = in1_features, in2_features
        self.out_features = out_features
        self.weight = Parameter(empty((out_features, in1_features, in2_features), dtype, device))
        if bias:
            self.bias = Parameter(empty((out_features,), dtype, device))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = 1 / math.sqrt(self.in1_features)
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )
