"""Which layer becomes which: dynamic, static, in training with rounding."""

from __future__ import annotations

from typing import Any

from .. import nn
from .layers import conv, elements, embedding, fused, linear, qat, recurrent

DYNAMIC: dict[type, type] = {
    nn.Linear: linear.DynamicLinear,
    nn.LSTM: recurrent.LSTM,
    nn.GRU: recurrent.GRU,
    nn.LSTMCell: recurrent.LSTMCell,
    nn.GRUCell: recurrent.GRUCell,
    nn.RNNCell: recurrent.RNNCell,
    nn.Embedding: embedding.Embedding,
    nn.EmbeddingBag: embedding.EmbeddingBag,
}

QAT: dict[type, type] = {
    nn.Linear: qat.Linear,
    nn.Embedding: qat.Embedding,
    nn.Conv1d: qat.Conv1d,
    nn.Conv2d: qat.Conv2d,
    nn.Conv3d: qat.Conv3d,
    fused.LinearReLU: qat.LinearReLU,
    fused.ConvReLU1d: qat.ConvReLU1d,
    fused.ConvReLU2d: qat.ConvReLU2d,
    fused.ConvReLU3d: qat.ConvReLU3d,
    fused.ConvBn1d: qat.ConvBn1d,
    fused.ConvBn2d: qat.ConvBn2d,
    fused.ConvBn3d: qat.ConvBn3d,
    fused.ConvBnReLU1d: qat.ConvBnReLU1d,
    fused.ConvBnReLU2d: qat.ConvBnReLU2d,
    fused.ConvBnReLU3d: qat.ConvBnReLU3d,
}

THROUGH = (
    nn.BatchNorm2d, nn.BatchNorm3d, nn.LayerNorm, nn.GroupNorm, nn.InstanceNorm1d,
    nn.InstanceNorm2d, nn.InstanceNorm3d, nn.ELU, nn.LeakyReLU, nn.Hardswish, nn.Hardsigmoid,
    nn.PReLU, nn.Softmax,
    nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d, fused.BNReLU2d, fused.BNReLU3d,
)  # fmt: skip

STATIC: dict[type, type] = {
    elements.QuantStub: elements.Quantize,
    elements.DeQuantStub: elements.DeQuantize,
    elements.FloatFunctional: elements.QFunctional,
    nn.Linear: linear.Linear,
    nn.Conv1d: conv.Conv1d,
    nn.Conv2d: conv.Conv2d,
    nn.Conv3d: conv.Conv3d,
    nn.Embedding: embedding.Embedding,
    nn.EmbeddingBag: embedding.EmbeddingBag,
    fused.LinearReLU: linear.LinearReLU,
    fused.ConvReLU1d: conv.ConvReLU1d,
    fused.ConvReLU2d: conv.ConvReLU2d,
    fused.ConvReLU3d: conv.ConvReLU3d,
    qat.Linear: linear.Linear,
    qat.LinearReLU: linear.LinearReLU,
    qat.Embedding: embedding.Embedding,
    qat.Conv1d: conv.Conv1d,
    qat.Conv2d: conv.Conv2d,
    qat.Conv3d: conv.Conv3d,
    qat.ConvReLU1d: conv.ConvReLU1d,
    qat.ConvReLU2d: conv.ConvReLU2d,
    qat.ConvReLU3d: conv.ConvReLU3d,
    qat.ConvBn1d: conv.Conv1d,
    qat.ConvBn2d: conv.Conv2d,
    qat.ConvBn3d: conv.Conv3d,
    qat.ConvBnReLU1d: conv.ConvReLU1d,
    qat.ConvBnReLU2d: conv.ConvReLU2d,
    qat.ConvBnReLU3d: conv.ConvReLU3d,
    **dict.fromkeys(THROUGH, elements.Through),
}

TABLES = (nn.Embedding, nn.EmbeddingBag, qat.Embedding)  # what they give is not rounded
OBSERVED = tuple(kind for kind in STATIC if kind not in (elements.DeQuantStub, *TABLES))


def get_default_static_quant_module_mappings() -> dict[Any, Any]:
    """What ``convert`` makes of calibrated layers."""
    return dict(STATIC)


def get_default_dynamic_quant_module_mappings() -> dict[Any, Any]:
    """What ``quantize_dynamic`` makes of layers."""
    return dict(DYNAMIC)


def get_default_qat_module_mappings() -> dict[Any, Any]:
    """What ``prepare_qat`` makes of layers."""
    return dict(QAT)


def get_default_qconfig_propagation_list() -> set[type]:
    """The kinds of layers that are given a QConfig."""
    return {*STATIC, *QAT, *DYNAMIC}


def get_default_compare_output_module_list() -> set[type]:
    """The kinds of layers whose results are compared."""
    return {*STATIC, *STATIC.values(), *QAT, *DYNAMIC, *DYNAMIC.values()}


__all__ = [
    "DYNAMIC", "OBSERVED", "QAT", "STATIC", "TABLES", "THROUGH",
    "get_default_compare_output_module_list", "get_default_dynamic_quant_module_mappings",
    "get_default_qat_module_mappings", "get_default_qconfig_propagation_list",
    "get_default_static_quant_module_mappings",
]  # fmt: skip
