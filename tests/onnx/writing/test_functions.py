"""Modules as models: what they compute, and by which operators."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import nn
from disttrain.core import wrap
from disttrain.nn import functional as F
from disttrain.onnx.writing.entry import export
from support.cases import nn_cases as cases
from support.onnx_runs import operators, written

CASES = [
    *cases.ACTIVATIONS, *cases.LAYERS, *cases.CONVOLUTIONS, *cases.POOLING, *cases.SHAPES,
    *cases.LOSSES, *cases.RECURRENT,
]  # fmt: skip
# Modules that are one operator: of versions that have it, and nothing beside.
WHOLE = {
    "ReLU": "Relu", "LeakyReLU": "LeakyRelu", "ELU": "Elu", "CELU": "Celu", "SELU": "Selu",
    "GELU": "Gelu", "Mish": "Mish", "Hardtanh": "Clip", "ReLU6": "Clip", "Hardswish": "HardSwish",
    "Hardsigmoid": "HardSigmoid", "Softsign": "Softsign", "Softmax": "Softmax",
    "LogSoftmax": "LogSoftmax", "Embedding": "Gather", "LayerNorm": "LayerNormalization",
    "RMSNorm": "RMSNormalization", "GroupNorm": "GroupNormalization",
    "InstanceNorm1d": "InstanceNormalization", "BatchNorm1d": "BatchNormalization",
    "BatchNorm3d": "BatchNormalization", "Conv3d": "Conv", "ConvTranspose1d": "ConvTranspose",
    "MaxPool2d": "MaxPool", "AvgPool2d": "AveragePool", "ReflectionPad2d": "Pad",
    "ReplicationPad2d": "Pad", "CircularPad2d": "Pad", "Fold": "Col2Im", "PixelShuffle": "",
    "Sigmoid": "Sigmoid", "Tanh": "Tanh", "Softplus": "",
}  # fmt: skip


def settle(module: nn.Module) -> None:
    for name, t in module.named_buffers():
        if name.startswith("running"):
            t.copy_(dt.rand(*t.shape) + 0.5)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_a_module_computes_the_same(case):
    dt.manual_seed(0)
    module = getattr(nn, case.name)(*case.args, **case.kwargs).eval()
    settle(module)
    xs = tuple(wrap(a.astype("f4") if a.dtype == float else a) for a, _ in case.arrays())
    made = written(module, xs, kwargs=case.call or None)
    kind = WHOLE.get(case.name)
    if kind:
        assert operators(made) == [kind]
    kept = {t.name for t in made.model_proto.graph.initializer}
    named = {n for n, _ in module.named_parameters()}
    if not case.name.startswith(("LSTM", "GRU", "RNN")):
        assert named <= kept, "parameters keep their names"


@pytest.mark.parametrize("opset", [17, 21, 26])
def test_modules_of_other_operator_sets(opset):
    for module, shape in (
        (nn.GELU(), (3, 4)), (nn.Mish(), (3, 4)), (nn.RMSNorm(4), (3, 4)),
        (nn.GroupNorm(2, 4), (2, 4, 5)), (nn.CircularPad2d(1), (1, 1, 3, 3)),
        (nn.LayerNorm((3, 4)), (2, 3, 4)), (nn.Upsample(scale_factor=2), (1, 2, 3, 3)),
    ):  # fmt: skip
        written(module, (dt.randn(*shape),), opset_version=opset)


def test_attention_is_one_operator():
    q = dt.randn(2, 3, 5, 4)
    made = written(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), (q,))
    assert operators(made) == ["Attention"]
    mask = dt.rand(5, 5) > 0.3
    mask[:, 0] = True
    written(lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m), (q, mask))
    written(lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m[:, None, None, :]),
            (q, dt.rand(2, 5) > 0.3), (dt.randn(3, 3, 7, 4), dt.rand(3, 7) > 0.3),
            dynamic=({0: "n", 2: "length"}, {0: "n", 1: "length"}))  # fmt: skip
    mask[1] = False  # a query that sees nothing
    written(lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m), (q, mask))
    old = export(lambda q: F.scaled_dot_product_attention(q, q, q), (q,), opset_version=22)
    assert operators(old) == ["Mul", "Transpose", "MatMul", "Softmax", "MatMul"]


def test_patterns_ask_for_the_same_value_each_time():
    """Nearly an elu, nearly a softsign: they stay what they are."""
    made = written(lambda x, y: x / (y.abs() + 1), (dt.randn(3), dt.randn(3)))
    assert "Softsign" not in operators(made)
    written(lambda x, y: dt.where(x > 0, x, y * 0.1), (dt.randn(3), dt.randn(3)))
    written(lambda x, s: dt.where(x > 0, x, x * s), (dt.randn(3), dt.randn(2, 3)))


def test_a_mask_that_is_used_twice_is_drawn_once():
    def fn(x):
        kept = F.dropout(x, 0.5, training=True)
        return kept, kept != 0

    y, kept = export(fn, (dt.ones(64),))(dt.ones(64))
    assert ((y != 0) == kept).all()
