"""Layers that were several: what calibration sees as one, so that what lies between them is not
rounded. In training, normalisation stays a part of its own (``*Bn*``)."""

from __future__ import annotations

from typing import Any

from ... import nn


class _Fused(nn.Sequential):
    """Several layers in a row."""

    def __init__(self, *layers: Any, qconfig: Any = None) -> None:
        super().__init__(*layers)
        for layer in layers:
            if getattr(layer, "qconfig", None) is not None and qconfig is None:
                qconfig = layer.qconfig
        if qconfig is not None:
            self.qconfig = qconfig


class LinearReLU(_Fused):
    """A Linear and a ReLU."""


class LinearBn1d(_Fused):
    """A Linear and a BatchNorm1d."""


class ConvReLU1d(_Fused):
    """A Conv1d and a ReLU."""


class ConvReLU2d(_Fused):
    """A Conv2d and a ReLU."""


class ConvReLU3d(_Fused):
    """A Conv3d and a ReLU."""


class ConvBn1d(_Fused):
    """A Conv1d and a BatchNorm1d."""


class ConvBn2d(_Fused):
    """A Conv2d and a BatchNorm2d."""


class ConvBn3d(_Fused):
    """A Conv3d and a BatchNorm3d."""


class ConvBnReLU1d(_Fused):
    """A Conv1d, a BatchNorm1d and a ReLU."""


class ConvBnReLU2d(_Fused):
    """A Conv2d, a BatchNorm2d and a ReLU."""


class ConvBnReLU3d(_Fused):
    """A Conv3d, a BatchNorm3d and a ReLU."""


class BNReLU2d(_Fused):
    """A BatchNorm2d and a ReLU."""


class BNReLU3d(_Fused):
    """A BatchNorm3d and a ReLU."""


__all__ = [
    "BNReLU2d", "BNReLU3d", "ConvBn1d", "ConvBn2d", "ConvBn3d", "ConvBnReLU1d", "ConvBnReLU2d",
    "ConvBnReLU3d", "ConvReLU1d", "ConvReLU2d", "ConvReLU3d", "LinearBn1d", "LinearReLU",
]  # fmt: skip
