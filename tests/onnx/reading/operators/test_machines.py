"""Support vector machines drawn by a seed, and dictionaries, are those of onnxruntime."""

from __future__ import annotations

import random

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import disttrain as dt
from disttrain.errors import NodeError
from support.onnx_graphs import FLOAT, INT64, model, node, port

ML = "ai.onnx.ml"
STRING = onnx.TensorProto.STRING
KERNELS = ("LINEAR", "RBF", "POLY", "SIGMOID")


def both(made, feeds):
    """Results here and those of onnxruntime."""
    made.opset_import[1].version = 3
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    want = onnxruntime.InferenceSession(made.SerializeToString(), options).run(None, feeds)
    return list(dt.onnx.load(made).run(feeds).values()), want


def check(made, feeds, tolerance=1e-4):
    for a, b in zip(*both(made, feeds), strict=True):
        assert np.shape(a) == np.shape(b)
        if np.asarray(b).dtype.kind in "OU":
            assert np.array_equal(a, b)
        else:
            assert np.allclose(a, b, atol=tolerance, rtol=tolerance)


def machine(seed):
    """Attributes of a classifier, and its labels."""
    draw, rng = random.Random(seed), np.random.default_rng(seed)
    classes = draw.choice([2, 3, 4])
    counts = [draw.randint(1, 3) for _ in range(classes)]
    pairs = classes * (classes - 1) // 2
    words = {
        "kernel_type": draw.choice(KERNELS),
        "kernel_params": [0.3, 0.1, 2.0],
        "support_vectors": rng.standard_normal(sum(counts) * 3).tolist(),
        "coefficients": rng.standard_normal(sum(counts) * (classes - 1)).tolist(),
        "vectors_per_class": counts,
        "rho": rng.standard_normal(pairs).tolist(),
    }
    if draw.random() < 0.5:
        words |= {"prob_a": (-abs(rng.standard_normal(pairs))).tolist(), "prob_b": [0.1] * pairs}
    if draw.random() < 0.5:
        words["classlabels_strings"] = [f"c{i}" for i in range(classes)]
    else:
        words["classlabels_ints"] = [i * 2 for i in range(classes)]
    return words


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_classifiers(first):
    for seed in range(first, first + 20):
        words = machine(seed)
        kind = STRING if "classlabels_strings" in words else INT64
        made = model([node("SVMClassifier", "x", "l s", domain=ML, **words)], ["x"],
                     [port("l", kind), port("s")], domains=(ML,))  # fmt: skip
        x = np.random.default_rng(seed).standard_normal((5, 3)).astype(np.float32)
        check(made, {"x": x}, 2e-3 if "prob_a" in words else 1e-4)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("one_class", [0, 1])
def test_regressors(kernel, one_class):
    rng = np.random.default_rng(0)
    words = {"kernel_type": kernel, "kernel_params": [0.3, 0.1, 3.0], "n_supports": 4,
             "support_vectors": rng.standard_normal(12).tolist(), "one_class": one_class,
             "coefficients": rng.standard_normal(4).tolist(), "rho": [0.2]}  # fmt: skip
    made = model([node("SVMRegressor", "x", "y", domain=ML, **words)], ["x"], ["y"],
                 domains=(ML,))  # fmt: skip
    check(made, {"x": rng.standard_normal((5, 3)).astype(np.float32)})


def of_dictionary(kind, key, value, result, **words):
    made = model([node(kind, "x", "y", domain=ML, **words)], [], [port("y", result)], (),
                 domains=(ML,))  # fmt: skip
    values = helper.make_tensor_type_proto(value, None)
    made.graph.input.append(helper.make_value_info("x", helper.make_map_type_proto(key, values)))
    return made


def test_dictionaries_become_rows():
    words = {"string_vocabulary": ["a", "c", "b"]}
    made = of_dictionary("DictVectorizer", STRING, FLOAT, FLOAT, **words)
    check(made, {"x": {"a": 4.0, "c": 8.0}})
    made = of_dictionary("DictVectorizer", INT64, STRING, STRING, int64_vocabulary=[3, 1])
    assert dt.onnx.load(made).run({"x": {1: "one"}})["y"].tolist() == [["", "one"]]
    for words in ({}, {"map_form": "SPARSE", "max_map": 5}):
        for cast_to, kind in (("TO_FLOAT", FLOAT), ("TO_INT64", INT64)):
            made = of_dictionary("CastMap", INT64, FLOAT, kind, cast_to=cast_to, **words)
            check(made, {"x": {3: 4.0, 0: 8.0}})
    loaded = dt.onnx.load(of_dictionary("CastMap", INT64, FLOAT, FLOAT))
    with pytest.raises(NodeError, match="a dictionary is needed; given is list"):
        loaded([1.0])
    loaded = dt.onnx.load(
        of_dictionary("CastMap", INT64, FLOAT, FLOAT, map_form="SPARSE", max_map=1 << 40)
    )
    with pytest.raises(NodeError, match="at most 1048576"):
        loaded({0: 1.0})
