"""Operators: two of ONNX's own cases for each (tests/peers/onnx runs all), models drawn by
a seed beside onnxruntime, and what the cases leave open."""

from __future__ import annotations

import random

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import NodeError
from support.onnx_backend import check, one_of_each_operator
from support.onnx_graphs import INT64, array, model, node, port
from support.onnx_models import drawn, ours, theirs


@pytest.mark.parametrize("name", one_of_each_operator())
def test_a_case_of_onnx(name):
    check(name)


@pytest.mark.parametrize("first", range(0, 100, 10))
def test_drawn_models_are_those_of_onnxruntime(first):
    for seed in range(first, first + 10):
        found, differences = drawn(seed, ours, theirs, version=20 if seed % 3 else 13)
        assert not differences, [d[:4] for d in differences]
        assert found.nodes


def run(made, **feeds):
    return next(iter(dt.onnx.load(made).run(feeds).values()))


@pytest.mark.parametrize("hidden", [3])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_networks_with_lengths_are_those_without_on_full_rows(kind, hidden):
    rng = np.random.default_rng(0)
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    arrays = (
        array("w", rng.standard_normal((2, gates * hidden, 5))),
        array("r", rng.standard_normal((2, gates * hidden, hidden))),
        array("b", rng.standard_normal((2, 2 * gates * hidden))),
        array("n", [4, 4], np.int32),
    )
    x = rng.standard_normal((4, 2, 5)).astype(np.float32)
    words = {"hidden_size": hidden, "direction": "bidirectional"} | (
        {"linear_before_reset": 1} if kind == "GRU" else {}
    )
    fused = model([node(kind, "x w r b", "y", **words)], ["x"], ["y"], arrays)
    spelled = model([node(kind, "x w r b n", "y", **words)], ["x"], ["y"], arrays)
    assert np.allclose(run(fused, x=x), run(spelled, x=x), atol=1e-5)


def test_gradients_go_through_recurrent_networks_to_their_weights():
    arrays = (
        array("w", np.ones((1, 8, 3)) * 0.1),
        array("r", np.ones((1, 8, 2)) * 0.1),
        array("b", np.zeros((1, 16))),
    )
    loaded = dt.onnx.load(
        model([node("LSTM", "x w r b", "y h c", hidden_size=2)], ["x"], ["y", "h", "c"], arrays)
    )
    y, h, c = loaded(dt.ones(4, 2, 3))
    (y.sum() + h.sum() + c.sum()).backward()
    assert all(p.grad is not None and float(abs(p.grad).sum()) > 0 for p in loaded.parameters())


@pytest.mark.parametrize("version", [9, 10, 11, 13, 18])
def test_what_became_inputs_is_read_as_attributes_before(version):
    nodes, arrays = [], []
    if version < 13:
        nodes.append(node("Unsqueeze", "x", "a", axes=[0]))
        nodes.append(node("ReduceSum", "a", "b", axes=[1], keepdims=0))
    else:
        arrays += [array("zero", [0], np.int64), array("one", [1], np.int64)]
        nodes += [node("Unsqueeze", "x zero", "a"), node("ReduceSum", "a one", "b", keepdims=0)]
    if version < 10:
        nodes.append(node("Slice", "b", "c", starts=[1], ends=[3], axes=[1]))
        nodes.append(node("TopK", "c", "y i", k=1))
    else:
        arrays += [array("s", [1], np.int64), array("e", [3], np.int64), array("k", [1], np.int64)]
        nodes += [node("Slice", "b s e s", "c"), node("TopK", "c k", "y i")]
    made = model(nodes, ["x"], ["y"], tuple(arrays), version=version)
    assert run(made, x=np.arange(8, dtype=np.float32).reshape(2, 4)).tolist() == [[8.0]]


def test_windows_that_do_not_fit_are_told():
    made = model([node("MaxPool", "x", "y", kernel_shape=[3])], ["x"], ["y"])
    with pytest.raises(NodeError, match=r"ai.onnx.MaxPool.*do not fit"):
        run(made, x=np.ones((1, 1, 2), np.float32))


def test_drawn_numbers_follow_the_seed_of_the_model_or_the_program():
    seeded = model([node("RandomNormal", "", "y", shape=[8], seed=3.0)], [], ["y"])
    assert np.array_equal(run(seeded), run(seeded))
    free = model([node("RandomUniform", "", "y", shape=[1000], low=2.0, high=3.0)], [], ["y"])
    dt.manual_seed(1)
    a = run(free)
    dt.manual_seed(1)
    assert np.array_equal(run(free), a) and 2 <= a.min() and a.max() < 3
    drawn_ = model([node("Bernoulli", "x", "y")], ["x"], ["y"], version=15)
    share = run(drawn_, x=np.full(2000, 0.25, np.float32)).mean()
    assert 0.2 < share < 0.3


def test_dropout_of_a_model_in_training():
    arrays = (array("ratio", 0.25), array("on", True, np.bool_))
    made = model(
        [node("Dropout", "x ratio on", "y mask")], ["x"], ["y", port("mask", 9, None)], arrays
    )
    out = dt.onnx.load(made).run({"x": np.ones(4000, np.float32)})
    assert np.array_equal(out["y"] != 0, out["mask"])
    assert 0.7 < out["mask"].mean() < 0.8 and np.allclose(out["y"][out["mask"]], 4 / 3)


def test_places_out_of_range_are_told():
    made = model([node("Gather", "x at", "y")], ["x", port("at", INT64, None)], ["y"])
    with pytest.raises(NodeError, match=r"ai\.onnx\.Gather"):
        run(made, x=np.ones(3, np.float32), at=np.array([3]))


def test_integers_are_multiplied_exactly():
    rng = np.random.default_rng(0)
    a, b = (
        rng.integers(0, 256, (3, 4000)).astype(np.uint8),
        rng.integers(-128, 128, (4000, 2)).astype(np.int8),
    )
    made = model(
        [node("MatMulInteger", "a b za zb", "y")],
        [port("a", 2, None), port("b", 3, None)],
        [port("y", 6, None)],
        (array("za", 255, np.uint8), array("zb", -128, np.int8)),
    )
    assert np.array_equal(run(made, a=a, b=b), (a.astype(int) - 255) @ (b.astype(int) + 128))


def ensemble(rng, kind):
    """A random ensemble of trees, in the older form: classes, or one or two targets."""
    words = {}
    count = rng.choice((1, 2)) if kind == "Regressor" else rng.choice((2, 3))
    prefix = "target" if kind == "Regressor" else "class"
    rows, leaves = [], []

    def grow(tree, depth):
        number = sum(r[0] == tree for r in rows)
        at = len(rows)
        rows.append([tree, number, rng.randrange(3), rng.uniform(-1, 1), "LEAF", 0, 0])
        if depth and (number == 0 or rng.random() < 0.8):
            mode = rng.choice(("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT"))
            rows[at][4:] = [mode, grow(tree, depth - 1), grow(tree, depth - 1)]
        else:
            leaves.extend(
                (tree, number, t, rng.uniform(-1, 1)) for t in rng.sample(range(count), 1)
            )
        return number

    for tree in range(rng.randint(1, 4)):
        grow(tree, 3)
    names = "treeids nodeids featureids values modes truenodeids falsenodeids".split()
    words |= {f"nodes_{n}": list(c) for n, c in zip(names, zip(*rows))}
    names = "treeids nodeids ids weights".split()
    words |= {f"{prefix}_{n}": list(c) for n, c in zip(names, zip(*leaves))}
    if kind == "Regressor":
        return words | {"n_targets": count, "aggregate_function": rng.choice(("SUM", "MAX"))}
    post = rng.choice(("NONE", "LOGISTIC", "SOFTMAX"))
    return words | {"classlabels_int64s": list(range(count)), "post_transform": post}


@pytest.mark.parametrize("kind", ["Regressor", "Classifier"])
def test_ensembles_of_trees_are_those_of_onnxruntime(kind):
    for seed in range(20):
        words = ensemble(random.Random(seed), kind)
        outputs = "y" if kind == "Regressor" else "label y"
        step = node(f"TreeEnsemble{kind}", "x", outputs, domain="ai.onnx.ml", **words)
        made = model([step], ["x"], ["y"], domains=("ai.onnx.ml",))
        made.opset_import[1].version = 3
        x = np.random.default_rng(seed).uniform(-1, 1, (6, 3)).astype(np.float32)
        found = dt.onnx.load(made).run({"x": x})["y"]
        assert np.allclose(found, theirs(made, {"x": x}), atol=1e-5), (seed, words)


def test_labels_and_scores_of_classifiers():
    nodes = [
        node(
            "CategoryMapper",
            "t",
            "n",
            domain="ai.onnx.ml",
            cats_int64s=[3, 4],
            cats_strings=["a", "b"],
        ),
        node("ZipMap", "x", "z", domain="ai.onnx.ml", classlabels_strings=["no", "yes"]),
    ]
    made = model(
        nodes, [port("t", 8, None), "x"], [port("n", INT64, None), "z"], domains=("ai.onnx.ml",)
    )
    x = np.array([[0.25, 0.75]], np.float32)
    out = dt.onnx.load(made).run({"t": np.array(["b", "c"], object), "x": x})
    assert out["n"].tolist() == [4, -1]
    assert out["z"] == [{"no": 0.25, "yes": 0.75}]
