"""Operators of onnxruntime: what its quantizer writes is computed as it does; what fusions make."""

from __future__ import annotations

import logging

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    quantize_dynamic,
    quantize_static,
)

import disttrain as dt
from disttrain.errors import NodeError
from support.onnx_graphs import array, classifier, model, node, port
from support.onnx_models import theirs

X = np.random.default_rng(0).standard_normal((2, 1, 6, 6)).astype(np.float32)
MINE = ("com.microsoft",)


class Batches(CalibrationDataReader):
    """A few inputs to calibrate with."""

    def __init__(self):
        rng = np.random.default_rng(1)
        self.left = [rng.standard_normal(X.shape).astype(np.float32) for _ in range(4)]

    def get_next(self):
        return {"x": self.left.pop()} if self.left else None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["dynamic", "operators", "pairs", "pairs by channel"])
def test_quantized_models_are_those_of_onnxruntime(kind, tmp_path):
    source, target = tmp_path / "m.onnx", tmp_path / "q.onnx"
    onnx.save(classifier(), source)
    logging.disable(logging.WARNING)
    try:
        if kind == "dynamic":
            quantize_dynamic(source, target)
        else:
            form = QuantFormat.QOperator if kind == "operators" else QuantFormat.QDQ
            quantize_static(
                source, target, Batches(), quant_format=form, per_channel="channel" in kind
            )
    finally:
        logging.disable(logging.NOTSET)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(target, options, providers=["CPUExecutionProvider"])
    loaded = dt.onnx.load(target)
    assert np.allclose(loaded.run({"x": X})["y"], session.run(None, {"x": X})[0], atol=1e-5)
    full = dt.onnx.load(source).run({"x": X})["y"]
    assert np.abs(loaded.run({"x": X})["y"] - full).max() < 0.05


def beside(nodes, inputs, arrays, feeds, output="y"):
    made = model(nodes, inputs, [output], arrays, domains=MINE)
    found, want = dt.onnx.load(made).run(feeds)[output], theirs(made, feeds)
    assert want is not None
    assert np.allclose(found, want, atol=1e-5), (found, want)


def own(kind, inputs, outputs, **words):
    return node(kind, inputs, outputs, domain="com.microsoft", **words)


@pytest.mark.parametrize("kind", ["Gelu", "FastGelu", "QuickGelu"])
def test_activations(kind):
    beside([own(kind, "x", "y")], ["x"], (), {"x": np.linspace(-3, 3, 12, dtype=np.float32)})


def test_layers_that_fusions_make():
    rng = np.random.default_rng(0)
    x, s = (rng.standard_normal((2, 3, 8)).astype(np.float32) for _ in range(2))
    g = array("g", rng.standard_normal(8))
    b = array("b", rng.standard_normal(8))
    beside([own("BiasGelu", "x b", "y")], ["x"], (b,), {"x": x})
    words = {"epsilon": 1e-5}
    beside(
        [own("SkipLayerNormalization", "x s g b", "y", **words)],
        ["x", "s"],
        (g, b),
        {"x": x, "s": s},
    )
    beside(
        [own("SkipSimplifiedLayerNormalization", "x s g", "y", **words)],
        ["x", "s"],
        (g,),
        {"x": x, "s": s},
    )
    w = array("w", rng.standard_normal((3, 4)))
    beside([own("FusedMatMul", "x w", "y", alpha=0.5, transA=1)], ["x"], (w,), {"x": x})
    w = array("w", rng.standard_normal((4, 3, 3)))
    beside([own("FusedConv", "x w", "y", activation="Relu")], ["x"], (w,), {"x": x})


@pytest.mark.parametrize("bits", [4, 8])
def test_products_with_weights_in_blocks(bits):
    rng = np.random.default_rng(0)
    k, n, block = 40, 5, 16
    blocks = -(-k // block)
    weights = array("b", rng.integers(0, 256, (n, blocks, block * bits // 8)), np.uint8)
    scales = array("s", rng.random((n, blocks)) + 0.1)
    x = rng.standard_normal((3, k)).astype(np.float32)
    words = {"K": k, "N": n, "bits": bits, "block_size": block}
    beside([own("MatMulNBits", "x b s", "y", **words)], ["x"], (weights, scales), {"x": x})
    zeros = array("z", rng.integers(0, 256, (n, -(-blocks * bits // 8))), np.uint8)
    beside([own("MatMulNBits", "x b s z", "y", **words)], ["x"], (weights, scales, zeros), {"x": x})


def test_what_is_packed_for_a_machine_is_refused():
    made = model(
        [own("MatMulNBits", "x b s", "y", K=16, N=1, bits=2, block_size=16)],
        ["x", port("b", 2, None), "s"], ["y"], domains=MINE,
    )  # fmt: skip
    feeds = {
        "x": np.ones((1, 16), np.float32),
        "b": np.ones((1, 1, 4), np.uint8),
        "s": np.ones(1, np.float32),
    }
    with pytest.raises((NodeError, dt.errors.OperatorError), match="2 bits"):
        dt.onnx.load(made).run(feeds)
