"""Hostile models: flipped, cut and rewritten ones are refused by name, in bounded time."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import NodeError
from support.onnx_graphs import array, model, node
from support.onnx_hostile import KINDS, attack


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_models_are_refused_or_run(kind):
    outcomes = attack(kind, range(60))
    assert set(outcomes) <= {"ran", "refused", "not run"}
    assert outcomes["refused"] > 0


BIG = 2**40


@pytest.mark.parametrize("step", [
    node("MaxPool", "image", "y", kernel_shape=[BIG, BIG]),
    node("MaxPool", "image", "y", kernel_shape=[2, 2], pads=[BIG, 0, 0, 0]),
    node("AveragePool", "image", "y", kernel_shape=[2**15, 2**15], pads=[2**15] * 4),
    node("Conv", "image w", "y", pads=[0, 0, BIG, BIG]),
    node("ConvTranspose", "image w", "y", output_padding=[BIG, BIG]),
    node("ConvTranspose", "image w", "y", output_shape=[BIG, BIG]),
    node("Pad", "image pads", "y"),
    node("Resize", "image _ scales", "y"),
    node("OneHot", "at big ends", "y"),
    node("Tile", "image times", "y"),
    node("Expand", "image times", "y"),
    node("ConstantOfShape", "times", "y"),
    node("Range", "none big one", "y"),
    node("RandomNormal", "", "y", shape=[BIG, BIG]),
    node("HannWindow", "big", "y"),
    node("DFT", "image big", "y"),
    node("CenterCropPad", "image times", "y"),
    node("Col2Im", "image32 two_big ones", "y"),
    node("RoiAlign", "image boxes zero", "y", output_height=BIG, output_width=BIG),
    node("MaxUnpool", "image at4 times", "y", kernel_shape=[1, 1]),
], ids=lambda n: n.op_type)  # fmt: skip
def test_sizes_that_no_memory_has_are_refused(step):
    numbers = {
        "pads": [0, 0, 0, 0, 0, 0, BIG, BIG],
        "big": BIG,
        "times": [1, 1, BIG, BIG],
        "none": 0,
        "one": 1,
        "zero": [0],
        "at": [0],
        "two_big": [BIG, BIG],
        "ones": [1, 1],
        "at4": [[[[0]]]],
    }
    arrays = [array(n, v, np.int64) for n, v in numbers.items()]
    arrays += [array("w", np.ones((1, 1, 2, 2))), array("scales", [1, 1, 2.0**30, 2.0**30])]
    arrays += [
        array("ends", [0, 1]),
        array("boxes", [[0, 0, 1, 1]]),
        array("image32", np.ones((1, 1, 1))),
    ]
    loaded = dt.onnx.load(model([step], ["image"], ["y"], tuple(arrays), version=20))
    with pytest.raises(NodeError, match=step.op_type):
        loaded.run({"image": np.ones((1, 1, 1, 1), np.float32)})


def test_lists_of_sizes_have_a_limit():
    nodes = [node("Range", "none big one", "sizes"), node("Reshape", "x sizes", "y")]
    arrays = [array(n, v, np.int64) for n, v in (("none", 0), ("big", BIG), ("one", 1))]
    with pytest.raises(NodeError, match="numbers of sizes"):
        dt.onnx.load(model(nodes, ["x"], ["y"], tuple(arrays))).run({"x": np.ones(1, np.float32)})
