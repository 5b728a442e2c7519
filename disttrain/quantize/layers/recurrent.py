"""Recurrent networks whose products are of 8-bit integers: weights are rounded once, inputs and
states as they come. What happens between the products stays in floating point."""

from __future__ import annotations

from typing import Any

from ... import nn
from ...context import thread
from ...core import Tensor
from ...core.types.dtypes import float16, float32
from ...errors import ConfigError
from ...nn import functional as F
from ...nn.integer_recurrence import integer_recurrence
from ...nn.recurrence import Step
from ...ops.functions.index_arrays import visible
from ...ops.primitives import quantization as prim
from .. import types
from ..tensor import QuantizedTensor
from . import weights
from .weights import Int8Weight

_GRID = {"own": 0, "symmetric": False, "low": 0, "high": 255}


class Half(nn.Module):
    """The weight of one product in float16."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.register_buffer("float16_weight", weight.detach().to(float16))

    def forward(self, x: Tensor, b: Tensor | None) -> Tensor:
        """``x`` times the weight, and ``b``."""
        return F.linear(x, self.float16_weight.to(x.dtype), b)


class Product(Int8Weight):
    """The weight of one product, rounded."""

    def __init__(self, weight: QuantizedTensor) -> None:
        super().__init__()
        self.hold(weight)

    def forward(self, x: Tensor, b: Tensor | None) -> Tensor:
        """``x`` times the weight, and ``b``."""
        out: Tensor = prim.dynamic_linear(
            x, self.int8_weight, self.weight_scale, self.sums(), b, **_GRID
        )
        return out


class _IntegerStep(Step):
    """A step whose product with the state is a ``Product``."""

    def as_one(self, x: Tensor, state: tuple, backwards: bool) -> tuple | None:
        w = self.w
        if not isinstance(w, Product) or thread.autocast is not None:
            return None
        given = [x, *state, w.int8_weight, w.weight_scale]
        given += [] if self.b is None else [self.b]
        floats = [t for t in given if t is not w.int8_weight]
        if not all(visible(t) and t.dtype is float32 for t in floats) or not x.numel():
            return None
        if not visible(w.int8_weight) or any(t.requires_grad for t in (x, *state)):
            return None
        h, c = state if len(state) == 2 else (*state, None)
        out, *end = integer_recurrence(
            x, w.int8_weight, w.weight_scale, w.sums(), self.b, h, c, mode=self.mode,
            backwards=backwards,
        )  # fmt: skip
        return out, tuple(end)


def _take_over(out: Any, mod: Any, name: str) -> None:
    """Give ``out`` the settings and biases of ``mod``, and its weights rounded."""
    qconfig = weights.qconfig_of(mod, name)
    for key, value in vars(mod).items():
        if key not in ("_parameters", "_modules", "_buffers"):
            out.__dict__[key] = value
    for key, value in mod._parameters.items():
        if value is None or not key.startswith("weight"):
            out.register_buffer(key, None if value is None else value.detach().clone())
        else:
            out.add_module(key, _product(value, qconfig.weight()))


def _product(weight: Tensor, observer: Any) -> nn.Module:
    if observer.dtype is float16:
        return Half(weight)
    return Product(weights.observed(weight, observer))


class _Sequence(nn.modules.rnn.RNNBase):
    """Layers of a recurrent network, over a sequence."""

    dtype = types.qint8

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """One for a network that was trained, by the observer of weights in its qconfig."""
        if getattr(mod, "proj_size", 0):
            raise ConfigError(f"{cls.__name__}.from_float: proj_size is not known here")
        out = cls.__new__(cls)
        nn.Module.__init__(out)
        _take_over(out, mod, cls.__name__)
        return out

    def _step_of(self, suffix: str) -> Step:
        b_ih = getattr(self, "bias_ih" + suffix) if self.bias else None
        b_hh = getattr(self, "bias_hh" + suffix) if self.bias else None
        of_input = getattr(self, "weight_ih" + suffix), b_ih
        return _IntegerStep(self.mode, getattr(self, "weight_hh" + suffix), b_hh, None, of_input)

    @property
    def all_weights(self) -> Any:
        """The parts of every pass."""
        keys = ("weight_ih", "weight_hh") + (("bias_ih", "bias_hh") if self.bias else ())
        return [[getattr(self, k + suffix) for k in keys] for _, suffix in self._passes()]


class LSTM(_Sequence):
    """See ``nn.LSTM``."""

    forward = nn.LSTM.forward

    def _get_name(self) -> str:
        return "DynamicQuantizedLSTM"


class GRU(_Sequence):
    """See ``nn.GRU``."""

    forward = nn.GRU.forward

    def _get_name(self) -> str:
        return "DynamicQuantizedGRU"


class _Cell(nn.modules.rnn.RNNCellBase):
    """One step of a recurrent network."""

    def _get_name(self) -> str:
        return f"DynamicQuantized{type(self).__name__}"

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """One for a cell that was trained, by the observer of weights in its qconfig."""
        out = cls.__new__(cls)
        nn.Module.__init__(out)
        out.__dict__["mode"] = mod.mode
        _take_over(out, mod, cls.__name__)
        return out


class LSTMCell(_Cell):
    """See ``nn.LSTMCell``."""

    forward = nn.LSTMCell.forward


class GRUCell(_Cell):
    """See ``nn.GRUCell``."""

    forward = nn.GRUCell.forward


class RNNCell(_Cell):
    """See ``nn.RNNCell``."""

    forward = nn.RNNCell.forward


__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "Product", "RNNCell"]
