"""Linear layers with weights of 8 bits: for floating-point numbers with the weight alone in 8 bits,
or rounding their input as it comes (dynamic), and for quantized tensors (static)."""

from __future__ import annotations

from typing import Any

from ... import ops
from ...core import Tensor
from ...core.types.dtypes import float16
from ...errors import ConfigError, DTypeError, ShapeError
from ...nn import functional as F
from ...nn.parameter import Parameter
from ...ops.primitives import quantization as prim
from .. import types
from ..tensor import QuantizedTensor
from . import weights
from .outputs import Output
from .weights import Int8Weight

_FULL = {"own": 0, "symmetric": False, "low": 0, "high": 255}
_ROWS = {"symmetric": True, "low": -127, "high": 127}


def fitting(layer: Any, x: Tensor) -> Tensor:
    """``x``, of floating-point numbers and of the size that ``layer`` needs."""
    if x.is_quantized:
        raise DTypeError(f"{layer!r}: a quantized tensor given; needed floating-point numbers")
    if not x.ndim or x.shape[-1] != layer.in_features:
        raise ShapeError(
            f"{layer!r}: input of shape {list(x.shape)} given; needed a last dimension of "
            f"in_features={layer.in_features}"
        )
    return x


class _Linear(Int8Weight):
    in_features: int
    out_features: int

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}"


class WeightOnlyLinear(_Linear):
    """x Wᵀ + b with W as 8-bit integers, widened as they are multiplied: 4 times less memory to
    read. Gradients go through to x and to the bias."""

    bias: Parameter | None

    @classmethod
    def take_over(cls, linear: Any) -> None:
        """Make ``linear`` one of these, in place: whoever has it keeps it."""
        if "weight" not in linear._parameters:
            raise ConfigError(
                f"quantize_: the weight of {linear!r} is computed from other parameters "
                "(weight_norm, spectral_norm, pruning); make it one first, for example by "
                "remove_weight_norm, or leave the layer out by filter_fn"
            )
        weight = weights.around_zero(linear.weight)
        del linear.weight
        linear.__class__ = cls
        linear.hold(weight, with_sums=cls is not WeightOnlyLinear)

    def forward(self, input: Tensor) -> Tensor:
        x = fitting(self, input)
        out: Tensor = prim.weight_int8_linear(x, self.int8_weight, self.weight_scale, self.bias)
        return out

    @property
    def weight(self) -> QuantizedTensor:
        """The weight as a quantized tensor; ``dequantize()`` gives its numbers."""
        return self.held()

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, bias={self.bias is not None}"


class DynamicRowsLinear(WeightOnlyLinear):
    """The same with each row of x rounded to 8 bits too, on a grid around 0: products of integers.
    No gradients."""

    def forward(self, input: Tensor) -> Tensor:
        x = fitting(self, input)
        out: Tensor = prim.dynamic_linear(
            x, self.int8_weight, self.weight_scale, self.sums(), self.bias,
            own=x.ndim - 1, **_ROWS,
        )  # fmt: skip
        return out


class DynamicLinear(_Linear):
    """x Wᵀ + b where x, floating-point numbers, is rounded to 8 bits on a grid from its least to
    its greatest number. ``dtype``: qint8, or float16 for weights of that type."""

    float_bias: Tensor | None
    float16_weight: Tensor

    def __init__(
        self, in_features: int, out_features: int, bias_: bool = True, dtype: Any = types.qint8
    ) -> None:
        super().__init__()
        self.in_features, self.out_features, self.dtype = in_features, out_features, dtype
        shape = (out_features, in_features)
        if dtype is float16:
            self.register_buffer("float16_weight", ops.zeros(shape, dtype=float16))
        elif types.quantized(dtype, "DynamicLinear") is types.qint8:
            self.hold(weights.pretend(shape))
        else:
            raise DTypeError(f"DynamicLinear: dtype={dtype!r} given; needed qint8 or float16")
        self.register_buffer("float_bias", ops.zeros(out_features) if bias_ else None)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> DynamicLinear:
        """One for a layer that was trained, by the observer of weights in its qconfig."""
        observer = weights.qconfig_of(mod, cls.__name__).weight()
        dtype = observer.dtype
        out = cls(mod.in_features, mod.out_features, mod.bias is not None, dtype)
        if dtype is float16:
            out.float16_weight = mod.weight.detach().to(float16)
        else:
            out.hold(weights.observed(mod.weight, observer))
        out.float_bias = weights.bias_of(mod)
        return out

    def forward(self, x: Tensor) -> Tensor:
        x = fitting(self, x)
        if self.dtype is float16:
            return F.linear(x, self.float16_weight.to(x.dtype), self.float_bias)
        out: Tensor = prim.dynamic_linear(
            x, self.int8_weight, self.weight_scale, self.sums(), self.float_bias, **_FULL
        )
        return out

    def weight(self) -> Tensor:
        """The weight as a quantized tensor."""
        return self.float16_weight if self.dtype is float16 else self.held()

    def bias(self) -> Tensor | None:
        """The bias, of floating-point numbers."""
        return self.float_bias

    def set_weight_bias(self, w: QuantizedTensor, b: Tensor | None) -> None:
        """Take another weight and bias."""
        self.hold(w)
        self.float_bias = None if b is None else b.detach()

    def extra_repr(self) -> str:
        text = f"{super().extra_repr()}, dtype={self.dtype}"
        return text if self.dtype is float16 else f"{text}, qscheme={self.held().qscheme()}"

    def _get_name(self) -> str:
        return "DynamicQuantizedLinear"


class Linear(Output, _Linear):
    """x Wᵀ + b of a quantized x, rounded to the grid that calibration has found (``scale``,
    ``zero_point``)."""

    relu = False
    float_bias: Tensor | None

    def __init__(
        self, in_features: int, out_features: int, bias_: bool = True, dtype: Any = types.qint8
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.hold(weights.pretend((out_features, in_features)))
        self.register_buffer("float_bias", ops.zeros(out_features) if bias_ else None)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Linear:
        """One for a layer that was calibrated, or trained with rounding."""
        layer = mod[0] if cls.relu and not hasattr(mod, "weight") else mod
        observer = weights.weight_observer(mod, cls.__name__)
        out = cls(layer.in_features, layer.out_features, layer.bias is not None)
        out.hold(weights.observed(layer.weight, observer))
        out.float_bias = weights.bias_of(layer)
        out.take_grid(mod)
        return out

    def forward(self, x: Tensor) -> QuantizedTensor:
        given = self.quantized_input(x)
        if given.shape[-1] != self.in_features:
            raise ShapeError(
                f"{self!r}: input of shape {list(given.shape)} given; needed a last dimension of "
                f"in_features={self.in_features}"
            )
        out = prim.integer_linear(
            given.levels, self.int8_weight, self.weight_scale, self.sums(), self.float_bias,
            x_scale=float(given.grid.scale), x_zero=int(given.grid.zero),
        )  # fmt: skip
        return self.rounded(out, self.relu)

    def weight(self) -> QuantizedTensor:
        """The weight as a quantized tensor."""
        return self.held()

    def bias(self) -> Tensor | None:
        """The bias, of floating-point numbers."""
        return self.float_bias

    set_weight_bias = DynamicLinear.set_weight_bias

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, {self.grid_text()}, qscheme={self.held().qscheme()}"

    def _get_name(self) -> str:
        return "QuantizedLinear"


class LinearReLU(Linear):
    """The same with numbers below 0 made 0."""

    relu = True

    def _get_name(self) -> str:
        return "QuantizedLinearReLU"


__all__ = ["DynamicLinear", "DynamicRowsLinear", "Linear", "LinearReLU", "WeightOnlyLinear"]
