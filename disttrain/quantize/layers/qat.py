"""Layers in training whose weights are rounded as they will be (quantization-aware training)."""

from __future__ import annotations

from typing import Any

from ... import nn, ops
from ...core import Tensor
from ...nn import functional as F
from ...nn.utils.fusion import fuse_conv_bn_eval
from .weights import qconfig_of


def _like(cls: Any, layer: Any) -> Any:
    """An object of ``cls`` with the parameters and the settings of ``layer`` themselves."""
    out = cls.__new__(cls)
    out.__dict__.update(layer.__dict__)
    for store in ("_parameters", "_buffers", "_modules"):
        out.__dict__[store] = dict(layer.__dict__[store])
    out.__dict__["_hooks"] = None  # whoever takes its place takes them over
    return out


class Rounded:
    """A layer that computes with ``rounded_weight()``."""

    weight: Any
    weight_fake_quant: Any

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """One with the parameters of ``mod`` themselves, which has a qconfig."""
        qconfig = qconfig_of(mod, cls.__name__)
        out = _like(cls, mod)
        out.qconfig = qconfig
        out.weight_fake_quant = qconfig.weight()
        return out

    def rounded_weight(self) -> Tensor:
        """The weight, on its grid."""
        found: Tensor = self.weight_fake_quant(self.weight)
        return found


class Linear(Rounded, nn.Linear):
    """A Linear that computes with a rounded weight."""

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.rounded_weight(), self.bias)

    def to_float(self) -> Any:
        """The layer without rounding."""
        return _plain(nn.Linear, self)


class Embedding(Rounded, nn.Embedding):
    """An Embedding that gives rows of a rounded weight."""

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(input, self.rounded_weight(), self.padding_idx)


class _Conv(Rounded):
    dims: int

    def forward(self, input: Tensor) -> Tensor:
        own: Any = self
        found: Tensor = own._conv_forward(input, self.rounded_weight(), own.bias)
        return found

    def to_float(self) -> Any:
        """The layer without rounding."""
        return _plain(_PLAIN[self.dims], self)


class Conv1d(_Conv, nn.Conv1d):
    """A Conv1d that computes with a rounded weight."""


class Conv2d(_Conv, nn.Conv2d):
    """A Conv2d that computes with a rounded weight."""


class Conv3d(_Conv, nn.Conv3d):
    """A Conv3d that computes with a rounded weight."""


def _plain(cls: type, layer: Any) -> Any:
    out = _like(cls, layer)
    for name in ("weight_fake_quant", "bn", "activation_post_process"):
        out._modules.pop(name, None)
    return out


class _WithReLU:
    """The layer and a ReLU; made of both in a row."""

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """One with the parameters of ``mod`` themselves."""
        layer = mod[0]
        layer.qconfig = qconfig_of(mod, cls.__name__)
        return super().from_float(layer)  # type: ignore[misc]

    def forward(self, input: Tensor) -> Tensor:
        return ops.relu(super().forward(input))  # type: ignore[misc]


class LinearReLU(_WithReLU, Linear):
    """Linear and ReLU."""


class ConvReLU1d(_WithReLU, Conv1d):
    """Conv1d and ReLU."""


class ConvReLU2d(_WithReLU, Conv2d):
    """Conv2d and ReLU."""


class ConvReLU3d(_WithReLU, Conv3d):
    """Conv3d and ReLU."""


# --- with normalisation --------------------------------------------------------------------------
class ConvBn(Rounded):
    """A convolution and its normalisation (``bn``), which will be taken into the weight: so the
    weight is rounded as it will be then, with the running deviations, and normalised by the batch's
    afterwards (Krishnamoorthi 2018, 3.2.2). State dicts name parameters as PyTorch's do."""

    dims: int
    relu = False
    bn: Any

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """One with the parameters of ``mod`` themselves, a convolution and a normalisation in a
        row."""
        conv, bn = mod[0], mod[1]
        conv.qconfig = qconfig_of(mod, cls.__name__)
        out = super().from_float(conv)
        out.bn = bn
        out.train(mod.training)
        return out

    def forward(self, input: Tensor) -> Tensor:
        own: Any = self
        bn = self.bn
        factor = bn.weight / ops.sqrt(bn.running_var + bn.eps)
        column = (-1, *(1,) * (own.weight.ndim - 1))
        weight = self.weight_fake_quant(own.weight * factor.reshape(column))
        x = own._conv_forward(input, weight, None) / factor.reshape(column[:-1])
        if own.bias is not None:
            x = x + own.bias.reshape(column[:-1])
        out: Tensor = bn(x)
        return ops.relu(out) if self.relu else out

    def folded(self) -> Any:
        """The convolution with the normalisation in it."""
        own: Any = self
        was = own.training
        own.eval()
        found = fuse_conv_bn_eval(self.to_float(), self.bn)
        own.train(was)
        return found

    def to_float(self) -> Any:
        """The convolution alone, without rounding."""
        return _plain(_PLAIN[self.dims], self)


class ConvBn1d(ConvBn, nn.Conv1d):
    """In one dimension."""


class ConvBn2d(ConvBn, nn.Conv2d):
    """In two dimensions."""


class ConvBn3d(ConvBn, nn.Conv3d):
    """In three dimensions."""


class ConvBnReLU1d(ConvBn1d):
    """In one dimension, and a ReLU."""

    relu = True


class ConvBnReLU2d(ConvBn2d):
    """In two dimensions, and a ReLU."""

    relu = True


class ConvBnReLU3d(ConvBn3d):
    """In three dimensions, and a ReLU."""

    relu = True


def freeze_bn_stats(module: Any) -> None:
    """For ``Module.apply``: have normalisation keep its statistics."""
    if isinstance(module, ConvBn):
        module.bn.eval()


def update_bn_stats(module: Any) -> None:
    """For ``Module.apply``: have normalisation follow its batches."""
    if isinstance(module, ConvBn):
        module.bn.train()


_PLAIN = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}

__all__ = [
    "Conv1d", "Conv2d", "Conv3d", "ConvBn", "ConvBn1d", "ConvBn2d", "ConvBn3d", "ConvBnReLU1d",
    "ConvBnReLU2d", "ConvBnReLU3d", "ConvReLU1d", "ConvReLU2d", "ConvReLU3d", "Embedding",
    "Linear", "LinearReLU", "Rounded", "freeze_bn_stats", "update_bn_stats",
]  # fmt: skip
