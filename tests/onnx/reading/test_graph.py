"""What a graph says of its values: numbers of the host, buffers, when they are let go."""

from __future__ import annotations

import numpy as np

from disttrain.onnx.reading.building import build
from disttrain.onnx.reading.graph import Limits, Port, buffers_of, numbers_of
from support.onnx_graphs import BOOL, FLOAT, array, classifier, model, node, port, subgraph


def graph(made):
    return build(made, Limits(), "model")


def on_numbers(made):
    return {s.outputs[0]: s.on_numbers for g in graph(made).walk() for s in g.steps}


def test_arithmetic_on_sizes_is_that_of_the_host():
    found = on_numbers(classifier())
    assert found == {
        "a": False,
        "b": False,
        "c": False,
        "d": False,
        "e": True,
        "f": True,
        "g": True,
        "h": False,
        "y": False,
    }
    as_numbers, as_tensors = numbers_of(graph(classifier()))
    assert {"zero", "rest"} <= as_numbers
    assert not {"zero", "rest"} & as_tensors


def test_a_constant_of_both_kinds_is_both():
    nodes = [node("Reshape", "x s", "a"), node("Add", "s s", "y")]
    found = graph(model(nodes, ["x"], ["a", "y"], (array("s", [2, -1], np.int64),)))
    as_numbers, as_tensors = numbers_of(found)
    assert "s" in as_numbers and "s" in as_tensors


def test_what_is_made_of_sizes_but_large_is_a_tensor():
    nodes = [node("Shape", "x", "n"), node("ConstantOfShape", "n", "a"), node("Add", "x a", "y")]
    assert on_numbers(model(nodes, ["x"], ["y"])) == {"n": True, "a": False, "y": False}


def test_weights_are_no_numbers_of_the_host():
    nodes = [node("Add", "w w", "v"), node("Add", "x v", "y")]
    assert not any(on_numbers(model(nodes, ["x"], ["y"], (array("w", [1.0]),))).values())


def test_running_averages_and_scales_are_buffers():
    assert buffers_of(graph(classifier())) == {"norm.mean", "norm.var"}
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("DequantizeLinear", "q s z", "d"),
        node("Mul", "d s", "y"),
    ]
    made = model(nodes, ["x"], ["y"], (array("s", 0.5), array("z", 3, np.uint8)))
    assert buffers_of(graph(made)) == {"z"}, "the scale is used as a factor, too"


def test_values_are_let_go_after_their_last_use():
    nodes = [node("Relu", "x", "a"), node("Add", "a x", "b"), node("Mul", "a b", "y")]
    found = graph(model(nodes, ["x"], ["y"]))
    assert [s.frees for s in found.steps] == [(), ("x",), ("a", "b")]


def test_inner_graphs_keep_what_they_use():
    inner = subgraph([node("Add", "a a", "v")], [], ["v"])
    nodes = [
        node("Relu", "x", "a"),
        node("If", "on", "b", then_branch=inner, else_branch=inner),
        node("Neg", "b", "y"),
    ]
    found = graph(model(nodes, ["x", port("on", BOOL, [])], ["y"]))
    assert found.steps[0].frees == ("x",)
    assert found.steps[1].frees == ("a", "on")
    then = found.steps[1].graphs["then_branch"]
    assert then.taken() == {"a"}
    assert then.steps[0].frees == ()
    assert len(list(found.walk())) == 3


def test_ports_print():
    assert str(Port("x", FLOAT, ("batch", 3, None))) == "x[batch, 3, ?]"
    assert str(Port("x")) == "x[?]"
