"""Graphs of messages: names, versions, functions, and what is refused, with the node's name."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import disttrain as dt
from disttrain.errors import OperatorError, SerializationError
from disttrain.onnx.reading.graph import Limits
from support.onnx_graphs import array, model, node, port, subgraph

ONE = np.array([1.0, -2.0], np.float32)


def run(made, **feeds):
    return next(iter(dt.onnx.load(made).run(feeds or {"x": ONE}).values()))


@pytest.mark.parametrize(
    ("made", "error", "text"),
    [
        (
            model([node("Relu", "z", "y")], ["x"], ["y"]),
            SerializationError,
            "'y_node'.*input 'z' is made by nothing",
        ),
        (
            model([node("Add", "x z", "y"), node("Relu", "y", "z")], ["x"], ["y"]),
            SerializationError,
            "cycle",
        ),
        (
            model([node("Relu", "x", "y"), node("Relu", "x", "y")], ["x"], ["y"]),
            SerializationError,
            "'y' is there twice",
        ),
        (
            model([node("Relu", "x", "y")], ["x"], ["z"]),
            SerializationError,
            "result 'z'.*made by no node",
        ),
        (
            model([node("Nothing", "x", "y")], ["x"], ["y"]),
            OperatorError,
            r"'y_node' \(ai.onnx.Nothing, version 17\)",
        ),
        (
            model([node("Foo", "x", "y", domain="mine")], ["x"], ["y"]),
            SerializationError,
            "no version of domain 'mine'",
        ),
        (
            model([node("Foo", "x", "y", domain="mine")], ["x"], ["y"], domains=("mine",)),
            OperatorError,
            r"mine.Foo, version 1",
        ),
        (
            model([node("Relu", "x", "y", alpha=1.0)], ["x"], ["y"]),
            OperatorError,
            "attribute 'alpha'",
        ),
        (
            model([node("Conv", "x", "y")], ["x"], ["y"]),
            SerializationError,
            "1 inputs; needed are 2 to 3",
        ),
        (
            model([node("Cast", "x", "y")], ["x"], ["y"]),
            SerializationError,
            "attribute 'to' is missing",
        ),
        (
            model([node("Cast", "x", "y", to=1.5)], ["x"], ["y"]),
            SerializationError,
            "attribute 'to' is not of type INT",
        ),
        (
            model([node("Relu", "x", "y")], ["x"], ["y"], version=1000),
            OperatorError,
            "version 1000 of ai.onnx",
        ),
        (
            model([node("ImageDecoder", "x", "y")], ["x"], ["y"], version=20),
            OperatorError,
            "ai.onnx.ImageDecoder",
        ),
    ],
)
def test_what_cannot_be_built_is_refused_by_name(made, error, text):
    with pytest.raises(error, match=text):
        dt.onnx.load(made)


def function(name, inputs, outputs, nodes, attributes=()):
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    return helper.make_function("mine", name, inputs, outputs, nodes, imports, list(attributes))


def refers(kind, inputs, outputs, **references):
    made = node(kind, inputs, outputs)
    for name, source in references.items():
        a = made.attribute.add(name=name, type=onnx.AttributeProto.FLOAT)
        a.ref_attr_name = source
    return made


def test_functions_stand_in_place_of_their_nodes():
    slope = function("Slope", ["a"], ["b"], [refers("LeakyRelu", "a", "b", alpha="by")], ["by"])
    twice = function(
        "Twice",
        ["a"],
        ["c"],
        [
            node("Slope", "a", "b", domain="mine", by=0.5),
            node("Slope", "b", "c", domain="mine", by=0.25),
        ],
    )
    nodes = [node("Twice", "x", "b", domain="mine"), node("Twice", "b", "y", domain="mine")]
    made = model(nodes, ["x"], ["y"], functions=(slope, twice), domains=("mine",))
    assert run(made).tolist() == [1.0, -2.0 / 64]


def test_a_function_without_an_optional_input_and_a_default():
    f = function("Clip", ["a", "low"], ["b"], [node("Clip", "a low", "b")])
    f.attribute_proto.add(name="unused", type=onnx.AttributeProto.INT, i=1)
    made = model(
        [node("Clip", "x", "y", domain="mine")], ["x"], ["y"], functions=(f,), domains=("mine",)
    )
    assert run(made).tolist() == [1.0, -2.0]


def test_functions_that_call_themselves_are_refused():
    f = function("F", ["a"], ["b"], [node("F", "a", "b", domain="mine")])
    made = model(
        [node("F", "x", "y", domain="mine")], ["x"], ["y"], functions=(f,), domains=("mine",)
    )
    with pytest.raises(SerializationError, match="more than 32 graphs or functions deep"):
        dt.onnx.load(made)


def test_functions_that_open_into_too_many_nodes_are_refused():
    """Each calls the next one ten times: ten to the power of their number."""
    chain = [
        function(
            f"F{i}",
            ["a"],
            ["z"],
            [
                *[node(f"F{i + 1}", "a", f"v{j}", domain="mine") for j in range(10)],
                node("Relu", "a", "z"),
            ],
        )
        for i in range(8)
    ]
    chain.append(function("F8", ["a"], ["z"], [node("Relu", "a", "z")]))
    made = model(
        [node("F0", "x", "y", domain="mine")],
        ["x"],
        ["y"],
        functions=tuple(chain),
        domains=("mine",),
    )
    with pytest.raises(SerializationError, match="more than 5000 nodes"):
        dt.onnx.load(made, limits=Limits(nodes=5000))


def test_graphs_within_graphs_have_a_limit():
    inner = subgraph([node("Relu", "x", "deep")], [], ["deep"])
    for i in range(40):
        inner = subgraph(
            [node("If", "on", f"v{i}", then_branch=inner, else_branch=inner)], [], [f"v{i}"]
        )
        if i == 5:
            break
    made = model(
        [node("If", "on", "y", then_branch=inner, else_branch=inner)],
        ["x", port("on", onnx.TensorProto.BOOL, [])],
        ["y"],
    )
    with pytest.raises(SerializationError, match="more than 3 graphs"):
        dt.onnx.load(made, limits=Limits(depth=3))


def test_an_operator_that_onnx_has_as_a_function_runs_as_one():
    made = model([node("SwiGLU", "x x", "y")], ["x"], ["y"], version=28)
    x = ONE.astype(np.float64)
    assert np.allclose(run(made), x / (1 + np.exp(-x)) * x)


def test_an_input_that_is_an_initializer_may_be_given_or_not():
    made = model([node("Add", "x w", "y")], ["x", "w"], ["y"], (array("w", [1.0, 1.0]),))
    loaded = dt.onnx.load(made)
    assert [p.name for p in loaded.inputs] == ["x"]
    assert loaded.run({"x": ONE})["y"].tolist() == [2.0, -1.0]
    assert loaded.run({"x": ONE, "w": ONE})["y"].tolist() == [2.0, -4.0]


def test_sparse_initializers_are_named():
    made = model([node("Relu", "x", "y")], ["x"], ["y"])
    made.graph.sparse_initializer.add()
    with pytest.raises(OperatorError, match="sparse"):
        dt.onnx.load(made)


def test_functions_that_grow_with_each_level_are_refused_before_they_are_built():
    functions = []
    for i in range(30):
        kind, domain = ("Relu", "") if i == 29 else (f"f{i + 1}", "d")
        nodes = [helper.make_node(kind, [a], [b], domain=domain) for a, b in ("ac", "cb")]
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("d", 1)]
        functions.append(helper.make_function("d", f"f{i}", ["a"], ["b"], nodes, imports))
    made = model([node("f0", "x", "y", domain="d")], ["x"], ["y"], functions=tuple(functions),
                 domains=("d",))  # fmt: skip
    with pytest.raises(SerializationError, match="more than 1000000 nodes, those of functions"):
        dt.onnx.load(made)


def test_values_of_one_name_in_many_calls_have_names_of_their_own():
    body = [helper.make_node("Relu", ["a"], ["c"]), helper.make_node("Neg", ["c"], ["b"])]
    function = helper.make_function("d", "f", ["a"], ["b"], body, [helper.make_opsetid("", 17)])
    nodes = [helper.make_node("f", [f"v{i}"], [f"v{i + 1}"], domain="d") for i in range(20)]
    made = model(nodes, ["v0"], ["v20"], functions=(function,), domains=("d",))
    assert dt.onnx.load(made)(dt.ones(1)).tolist() == [0.0]


def test_two_inputs_of_one_name_are_refused():
    with pytest.raises(SerializationError, match="input 'x' is there twice"):
        dt.onnx.load(model([node("Relu", "x", "y")], ["x", "x"], ["y"]))
