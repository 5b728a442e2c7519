"""Products of matrices: the forms that Gemm has, and what onnxruntime puts in their place."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import disttrain as dt
from support.onnx_graphs import array, model, node
from support.onnx_nodes import beside, floats

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("version", [7, 9, 11, 13])
def test_a_linear_layer_in_all_its_forms(version):
    a, b = floats(RNG, 3, 4), floats(RNG, 4, 5)
    addends = (np.float32(2.0), floats(RNG, 5), floats(RNG, 1, 5), floats(RNG, 3, 1))
    for turned, factor, c in itertools.product((0, 1), (1.0, 0.5), addends):
        weights = b.T if turned else b
        words = {"transB": turned, "alpha": factor, "beta": 2 * factor}
        made = model([node("Gemm", "a b c", "y", **words)], ["a"], ["y"],
                     (array("b", weights), array("c", c)), version=version)  # fmt: skip
        want = factor * (a @ b) + 2 * factor * c
        assert np.allclose(dt.onnx.load(made).run({"a": a})["y"], want, atol=1e-5)


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        ((2, 3, 4), (2, 4, 5), {"alpha": 0.5}),
        ((2, 4, 3), (2, 5, 4), {"transA": 1, "transB": 1}),
        ((3, 2, 4), (2, 4, 5), {"transBatchA": 1}),
        ((4, 2, 3), (2, 4, 5), {"transBatchA": 1, "transA": 1}),
        ((2, 3, 4), (4, 2, 5), {"transBatchB": 1}),
        ((2, 3, 4), (5, 2, 4), {"transBatchB": 1, "transB": 1}),
        ((4,), (4,), {"transA": 1}),
    ],
)
def test_a_fused_product(a, b, words):
    beside("FusedMatMul", [floats(RNG, *a), floats(RNG, *b)], "y", **words)


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("Relu", {}),
        ("LeakyRelu", {"activation_alpha": 0.2}),
        ("Sigmoid", {}),
        ("Tanh", {}),
        ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4}),
        ("Elu", {"activation_alpha": 0.7}),
        ("Celu", {"activation_alpha": 0.5}),
        ("Softplus", {}),
        ("Softsign", {}),
        ("ThresholdedRelu", {"activation_alpha": 0.7}),
        ("ScaledTanh", {"activation_alpha": 0.5, "activation_beta": 1.5}),
    ],
)
def test_a_product_with_an_activation(name, numbers):
    given = [floats(RNG, 2, 3), floats(RNG, 3, 4), floats(RNG, 4)]
    beside("FusedGemm", given, "y", activation=name, alpha=0.5, **numbers)


@pytest.mark.parametrize(
    ("kind", "given", "words"),
    [
        ("TransposeMatMul", [floats(RNG, 4, 3), floats(RNG, 4, 3)], {"transA": 1}),
        ("Inverse", [floats(RNG, 2, 3, 3)], {}),
        ("ExpandDims", [floats(RNG, 2, 3), np.array(-1, np.int32)], {}),
        ("Trilu", [floats(RNG, 3, 4), np.array(1, np.int64)], {}),
        ("Pad", [floats(RNG, 3, 4), np.array([1, 0, 0, 1], np.int64)], {}),
        ("GatherND", [floats(RNG, 3, 4), np.array([[1, 0]], np.int64)], {}),
        ("CDist", [floats(RNG, 3, 4), floats(RNG, 2, 4)], {"metric": "sqeuclidean"}),
        ("CDist", [floats(RNG, 3, 4), floats(RNG, 2, 4)], {"metric": "euclidean"}),
    ],
)
def test_other_operators_of_that_domain(kind, given, words):
    beside(kind, given, "y", **words)
