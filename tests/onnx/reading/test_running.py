"""Graphs run: branches, loops and scans with values around them, errors with the node's name."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

import disttrain as dt
from disttrain.core.types import dtypes
from disttrain.errors import NodeError
from disttrain.onnx.reading.graph import Limits
from disttrain.onnx.reading.numbers import Numbers
from disttrain.onnx.reading.running import read, to_tensor
from support.onnx_graphs import BOOL, FLOAT, INT64, array, model, node, port, subgraph

ONE = np.array([1.0, -2.0], np.float32)


def branched():
    then = subgraph([node("Mul", "x w", "v")], [], ["v"], (array("w", [2.0]),))
    other = subgraph([node("Neg", "x", "v")], [], ["v"])
    nodes = [
        node("ReduceSum", "x", "s", keepdims=0),
        node("Greater", "s zero", "on"),
        node("If", "on", "y", then_branch=then, else_branch=other),
    ]
    return model(nodes, ["x"], ["y"], (array("zero", 0.0),))


def test_branches_see_values_around_them_and_their_weights_are_state():
    loaded = dt.onnx.load(branched())
    assert loaded.run({"x": ONE})["y"].tolist() == [-1.0, 2.0]
    assert loaded.run({"x": -ONE})["y"].tolist() == [-2.0, 4.0]
    names = list(loaded.state_dict())
    assert len(names) == 2 and any(n.endswith("w") for n in names)


def looped(most=5):
    body = subgraph(
        [
            node("Add", "v x", "next"),
            node("ReduceSum", "next", "total", keepdims=0),
            node("Less", "total limit", "going"),
            node("Identity", "total", "row"),
        ],
        [port("i", INT64, []), port("c", BOOL, []), "v"],
        [port("going", BOOL, []), "next", "row"],
    )
    made = model(
        [node("Loop", "count on x", "y rows", body=body)],
        ["x"],
        ["y", "rows"],
        (array("count", most, np.int64), array("on", True, np.bool_), array("limit", 10.0)),
    )
    return made


def test_a_loop_ends_by_its_count_or_its_condition():
    x = np.array([1.0, 1.0], np.float32)
    out = dt.onnx.load(looped()).run({"x": x})
    assert out["y"].tolist() == [5.0, 5.0] and out["rows"].tolist() == [4.0, 6.0, 8.0, 10.0]
    out = dt.onnx.load(looped(2)).run({"x": x})
    assert out["y"].tolist() == [3.0, 3.0] and out["rows"].tolist() == [4.0, 6.0]


def test_gradients_go_through_branches_and_loops():
    x = dt.tensor([1.0, 1.0], requires_grad=True)
    y, rows = dt.onnx.load(looped())(x)
    (y.sum() + rows.sum()).backward()
    assert x.grad.tolist() == [5.0 + 2 + 3 + 4 + 5] * 2


def test_a_loop_without_an_end_is_ended_by_its_limit():
    body = subgraph(
        [node("Identity", "c", "go"), node("Identity", "v", "w")],
        [port("i", INT64, []), port("c", BOOL, []), "v"],
        [port("go", BOOL, []), "w"],
    )
    made = model(
        [node("Loop", "_ on x", "y", body=body)], ["x"], ["y"], (array("on", True, np.bool_),)
    )
    with pytest.raises(NodeError, match=r"'y_node' \(ai.onnx.Loop.*more than 50 rounds"):
        dt.onnx.load(made, limits=Limits(iterations=50)).run({"x": ONE})


def test_a_scan_backwards_and_along_another_axis():
    body = subgraph([node("Add", "s e", "t"), node("Identity", "t", "o")], ["s", "e"], ["t", "o"])
    nodes = [
        node(
            "Scan",
            "start x",
            "last y",
            body=body,
            num_scan_inputs=1,
            scan_input_axes=[1],
            scan_input_directions=[1],
            scan_output_axes=[1],
        )
    ]
    made = model(nodes, ["start", "x"], ["last", "y"])
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    out = dt.onnx.load(made).run({"start": np.zeros(2, np.float32), "x": x})
    assert np.array_equal(out["y"], np.cumsum(x[:, ::-1], 1))
    assert np.array_equal(out["last"], x.sum(1))


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        ([node("MatMul", "x w", "y")], r"'y_node' \(ai.onnx.MatMul, version 17\)"),
        ([node("Reshape", "x bad", "y")], r"ai.onnx.Reshape.*7"),
        ([node("Concat", "x x", "y", axis=9)], "ai.onnx.Concat"),
        ([node("Squeeze", "x zero", "y")], "axis 0"),
        ([node("ConstantOfShape", "huge", "y")], "elements would be made"),
        ([node("Expand", "w huge", "y")], "elements would be made"),
        ([node("Tile", "x huge1", "y")], "elements would be made"),
        ([node("Range", "zero0 big one", "y")], "elements would be made"),
    ],
)
def test_what_fails_is_told_with_its_node(nodes, text):
    arrays = (
        array("w", np.ones((3, 3))),
        array("bad", [7, 7], np.int64),
        array("zero", [0], np.int64),
        array("huge", [2**40, 3, 3], np.int64),
        array("huge1", [2**40], np.int64),
        array("zero0", 0, np.int64),
        array("big", 2**60, np.int64),
        array("one", 1, np.int64),
    )
    with pytest.raises(NodeError, match=text):
        dt.onnx.load(model(nodes, ["x"], ["y"], arrays)).run({"x": ONE})


def test_sizes_read_as_tensors_and_back():
    row = to_tensor(Numbers([2, 3], (2,), dtypes.int64))
    assert row.dtype == dt.int64 and row.tolist() == [2, 3]
    assert to_tensor(Numbers([2], (), dtypes.float32)).tolist() == 2.0
    assert read(row).items == [2, 3]
    assert read(Numbers([1], (), dtypes.int64)).items == [1]


def test_sequences_and_optional_values():
    nodes = [
        node("SplitToSequence", "x", "s", axis=0),
        node("SequenceLength", "s", "n"),
        node("ConcatFromSequence", "s", "y", axis=0),
        node("OptionalHasElement", "s", "has"),
    ]
    made = model(
        nodes,
        ["x"],
        [port("n", INT64, []), port("y", FLOAT, None), port("has", TensorProto.BOOL, [])],
        version=18,
    )
    out = dt.onnx.load(made).run({"x": ONE})
    assert out["n"] == 2 and out["y"].tolist() == ONE.tolist() and out["has"]


def test_branches_by_sizes_and_loops_of_a_known_length_are_captured():
    then = subgraph([node("Neg", "x", "v")], [], ["v"])
    other = subgraph([node("Identity", "x", "v")], [], ["v"])
    body = subgraph(
        [node("Identity", "c", "go"), node("Add", "v v", "w"), node("Cast", "i", "f", to=1)],
        [port("i", INT64, []), port("c", BOOL, []), "v"],
        [port("go", BOOL, []), "w", "f"],
    )
    nodes = [
        node("Shape", "x", "n"),
        node("Gather", "n one", "k", axis=0),
        node("Equal", "k two", "on"),
        node("If", "on", "a", then_branch=then, else_branch=other),
        node("Loop", "three _ a", "y rows", body=body),
    ]
    arrays = [array(n, v, np.int64) for n, v in (("one", 1), ("two", 2), ("three", 3))]
    loaded = dt.onnx.load(model(nodes, ["x"], ["y", "rows"], tuple(arrays)))
    x = dt.ones(4, 2)
    program = dt.export(loaded, (), {"x": x}, dynamic={"x": {0: "batch"}})
    for given in (x, dt.ones(3, 2)):
        y, rows = program(x=given)
        assert y.tolist() == [[-8.0, -8.0]] * given.shape[0]
        assert rows.tolist() == [0.0, 1.0, 2.0]
    assert loaded.run({"x": np.ones((1, 3), np.float32)})["y"].tolist() == [[8.0] * 3]


def test_results_that_are_inputs_initializers_or_sizes():
    nodes = [node("Shape", "x", "n")]
    ports = ["x", port("w", INT64, None), port("n", INT64, None)]
    made = model(nodes, ["x"], ports, (array("w", [3], np.int64),))
    out = dt.onnx.load(made).run({"x": ONE})
    assert (
        out["x"].tolist() == ONE.tolist() and out["w"].tolist() == [3] and out["n"].tolist() == [2]
    )


def test_loops_within_loops_are_counted_together():
    words = {"inputs": [port("i", INT64, []), port("c", BOOL, []), "v"]}
    least = subgraph([node("Identity", "c", "d"), node("Identity", "v", "w")], words["inputs"],
                     [port("d", BOOL, []), "w"])  # fmt: skip
    around = subgraph(
        [node("Identity", "c", "d"), node("Loop", "many on v", "w", body=least)],
        words["inputs"],
        [port("d", BOOL, []), "w"],
    )
    arrays = (array("on", True, np.bool_), array("many", 20, np.int64))
    made = model([node("Loop", "many on x", "y", body=around)], ["x"], ["y"], arrays)
    out = dt.onnx.load(made, limits=Limits(iterations=420)).run({"x": ONE})
    assert np.array_equal(out["y"], ONE)
    loaded = dt.onnx.load(made, limits=Limits(iterations=419))
    for _ in range(2):
        with pytest.raises(NodeError, match="more than 419 rounds together"):
            loaded.run({"x": ONE})


@pytest.mark.parametrize("kind", ["Add", "MatMul", "Gemm", "Equal", "Where"])
def test_small_tensors_do_not_make_a_huge_one(kind):
    arrays = (array("b", np.ones((1, 200))), array("yes", True, np.bool_))
    made = model([node(kind, "yes x b" if kind == "Where" else "x b", "y")], ["x"],
                 [port("y", BOOL if kind == "Equal" else FLOAT)], arrays)  # fmt: skip
    loaded = dt.onnx.load(made, limits=Limits(elements=20_000))
    assert loaded(dt.ones(100, 1)).shape == (100, 200)
    with pytest.raises(NodeError, match=r"20200 elements would be made of .*\(101, 1\), \(1, 200"):
        loaded(dt.ones(101, 1))


def test_a_tensor_that_is_larger_than_the_limit_is_computed_with():
    made = model([node("Add", "x b", "y")], ["x"], ["y"], (array("b", np.ones((2, 1))),))
    loaded = dt.onnx.load(made, limits=Limits(elements=10))
    assert loaded(dt.ones(2, 20)).shape == (2, 20)
    with pytest.raises(NodeError, match="80 elements"):
        loaded(dt.ones(40, 1, 1))


def test_what_doubles_with_each_node_is_ended():
    nodes = [node("Concat", f"{n} {n}", f"v{i}", axis=0)
             for i, n in enumerate(["x", *[f"v{i}" for i in range(59)]])]  # fmt: skip
    loaded = dt.onnx.load(model(nodes, ["x"], ["v59"]), limits=Limits(elements=1000))
    with pytest.raises(NodeError, match="1024 elements would be made"):
        loaded(dt.ones(1))
