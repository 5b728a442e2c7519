"""Where a model goes over to quantized tensors and back; sums and products of such; and layers that
work on their numbers in floating point and round the result to a grid of their own."""

from __future__ import annotations

from typing import Any

from ... import nn, ops
from ...backends.fused.products.int8_product import affine
from ...core import Tensor
from .. import types
from ..grids import Grid
from ..tensor import QuantizedTensor, floats, made
from .outputs import Output


class QuantStub(nn.Module):
    """Passes on what it is given; calibration observes it, and ``convert`` makes a ``Quantize`` of
    it."""

    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()
        if qconfig is not None:
            self.qconfig = qconfig

    def forward(self, x: Tensor) -> Tensor:
        return x


class DeQuantStub(nn.Module):
    """Passes on what it is given; ``convert`` makes a ``DeQuantize`` of it."""

    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()
        if qconfig is not None:
            self.qconfig = qconfig

    def forward(self, x: Tensor) -> Tensor:
        return x


class QuantWrapper(nn.Module):
    """A module between a ``QuantStub`` and a ``DeQuantStub``."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        qconfig = getattr(module, "qconfig", None)
        self.quant, self.dequant = QuantStub(qconfig), DeQuantStub(qconfig)
        self.module = module
        self.train(module.training)

    def forward(self, X: Tensor) -> Any:  # noqa: N803  (the field's spelling)
        return self.dequant(self.module(self.quant(X)))


class Quantize(Output):
    """Floating-point numbers to a quantized tensor on the grid of ``scale`` and ``zero_point``."""

    def __init__(self, scale: Any = 1.0, zero_point: Any = 0, dtype: Any = types.quint8) -> None:
        super().__init__()
        self.set_grid(float(_number(scale)), int(_number(zero_point)), dtype)

    @property
    def dtype(self) -> Any:
        return self.kind

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Quantize:
        """One for a stub that was calibrated."""
        out = cls()
        out.take_grid(mod)
        return out

    def forward(self, X: Tensor) -> QuantizedTensor:  # noqa: N803
        return self.rounded(X.detach())

    def extra_repr(self) -> str:
        return f"{self.grid_text()}, dtype={self.kind!r}"


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor) else value


class DeQuantize(nn.Module):
    """A quantized tensor to the numbers that it stands for; others pass."""

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> DeQuantize:
        """One for a stub."""
        return cls()

    def forward(self, Xq: Any) -> Any:  # noqa: N803
        return floats(Xq)


# --- sums and products ---------------------------------------------------------------------------
class FloatFunctional(nn.Module):
    """Sums and products as a layer, so that calibration observes them: ``self.sum.add(a, b)``."""

    def __init__(self) -> None:
        super().__init__()
        self.activation_post_process = nn.Identity()

    def forward(self, x: Any) -> Any:
        raise RuntimeError(
            "FloatFunctional is not intended to use the 'forward'. Please use the underlying "
            "operation"
        )

    def _given(self, x: Any) -> Any:
        return self.activation_post_process(x)

    def add(self, x: Any, y: Any) -> Any:
        """x + y"""
        return self._given(floats(x) + floats(y))

    def mul(self, x: Any, y: Any) -> Any:
        """x y"""
        return self._given(floats(x) * floats(y))

    def add_scalar(self, x: Any, y: float) -> Any:
        """x + y for a number y; the grid goes along."""
        return floats(x) + y

    def mul_scalar(self, x: Any, y: float) -> Any:
        """x y for a number y; the grid goes along."""
        return floats(x) * y

    def cat(self, x: Any, dim: int = 0) -> Any:
        """Several side by side."""
        return self._given(ops.cat(list(map(floats, x)), dim))

    def add_relu(self, x: Any, y: Any) -> Any:
        """x + y, with numbers below 0 made 0."""
        return self._given(ops.relu(floats(x) + floats(y)))

    def matmul(self, x: Any, y: Any) -> Any:
        """The product of matrices."""
        return self._given(floats(x) @ floats(y))


class FXFloatFunctional(FloatFunctional):
    """The same, without observers."""


class QFunctional(Output):
    """FloatFunctional of quantized tensors, whose results are rounded to its grid."""

    add, mul, cat = FloatFunctional.add, FloatFunctional.mul, FloatFunctional.cat
    add_relu, matmul = FloatFunctional.add_relu, FloatFunctional.matmul
    forward = FloatFunctional.forward

    def _given(self, x: Tensor) -> QuantizedTensor:
        return self.rounded(x)

    def add_scalar(self, x: QuantizedTensor, y: float) -> QuantizedTensor:
        """x + y for a number y, on the grid of all that x could have become."""
        return _affine(x, 1.0, y)

    def mul_scalar(self, x: QuantizedTensor, y: float) -> QuantizedTensor:
        """x y for a number y, on the grid of all that x could have become."""
        return _affine(x, y, 0.0)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> QFunctional:
        """One for a FloatFunctional that was calibrated; where nothing was observed, of numbers
        alone."""
        out = cls()
        observer = mod.activation_post_process
        if getattr(observer, "has_seen", getattr(observer, "scale", None) is not None):
            out.take_grid(mod)
        return out

    def extra_repr(self) -> str:
        return self.grid_text()


def _affine(x: QuantizedTensor, factor: float, shift: float) -> QuantizedTensor:
    """x factor + shift."""
    low, high = types.limits(x.kind)
    scale, zero = float(x.grid.scale), int(x.grid.zero)
    ends = [(end - zero) * scale * factor + shift for end in (low, high)]
    scale, zero = (n.item() for n in affine(min(ends), max(ends), low, high))
    grid = Grid(scale, zero)
    return made(grid.levels(x.dequantize() * factor + shift, x.kind), grid, x.kind)


# --- through floating point ----------------------------------------------------------------------
class Through(Output):
    """A layer on the numbers of a quantized tensor, whose results are rounded to its grid."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Through:
        """One for a layer that was calibrated."""
        out = cls(mod)
        out.take_grid(mod)
        del mod.activation_post_process
        return out

    def forward(self, x: Any) -> QuantizedTensor:
        return self.rounded(self.layer(self.quantized_input(x).dequantize()))

    def extra_repr(self) -> str:
        return self.grid_text()


__all__ = [
    "DeQuantStub", "DeQuantize", "FXFloatFunctional", "FloatFunctional", "QFunctional",
    "QuantStub", "QuantWrapper", "Quantize", "Through",
]  # fmt: skip
