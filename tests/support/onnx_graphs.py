"""Small models in ONNX's format, for tests of what reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def port(name: str, kind: int = FLOAT, shape: Any = None) -> onnx.ValueInfoProto:
    """An input or a result."""
    return helper.make_tensor_value_info(name, kind, shape)


def array(name: str, values: Any, kind: Any = np.float32) -> onnx.TensorProto:
    """An initializer."""
    return numpy_helper.from_array(np.asarray(values, kind), name)


def model(
    nodes: list,
    inputs: list,
    outputs: list,
    initializers: tuple = (),
    version: int = 17,
    functions: tuple = (),
    domains: tuple = (),
) -> onnx.ModelProto:
    """A model; inputs and outputs are names (of floats of any shape) or ports."""

    def ports(given: list) -> list:
        return [port(p) if isinstance(p, str) else p for p in given]

    graph = helper.make_graph(nodes, "graph", ports(inputs), ports(outputs), list(initializers))
    imports = [helper.make_opsetid("", version), *[helper.make_opsetid(d, 1) for d in domains]]
    made = helper.make_model(graph, opset_imports=imports, functions=list(functions))
    made.ir_version = 10
    return made


def node(kind: str, inputs: str, outputs: str, **words: Any) -> onnx.NodeProto:
    """A node; names are separated by spaces, ``_`` is one left out."""

    def names(text: str) -> list[str]:
        return ["" if n == "_" else n for n in text.split()]

    domain = words.pop("domain", "")
    return helper.make_node(
        kind, names(inputs), names(outputs), outputs.split()[0] + "_node", domain=domain, **words
    )


def subgraph(nodes: list, inputs: list, outputs: list, initializers: tuple = ()) -> Any:
    """A graph that is an attribute."""
    return model(nodes, inputs, outputs, initializers).graph


def classifier() -> onnx.ModelProto:
    """A convolution, a normalization and a linear layer, with a batch of any size."""
    rng = np.random.default_rng(0)
    weights = {
        "conv.weight": rng.standard_normal((4, 1, 3, 3)) * 0.5,
        "conv.bias": np.zeros(4),
        "norm.weight": np.ones(4),
        "norm.bias": np.zeros(4),
        "norm.mean": np.zeros(4),
        "norm.var": np.ones(4),
        "fc.weight": rng.standard_normal((3, 4)) * 0.5,
        "fc.bias": np.zeros(3),
    }
    nodes = [
        node("Conv", "x conv.weight conv.bias", "a", pads=[1, 1, 1, 1]),
        node("BatchNormalization", "a norm.weight norm.bias norm.mean norm.var", "b"),
        node("Relu", "b", "c"),
        node("GlobalAveragePool", "c", "d"),
        node("Shape", "d", "e"),
        node("Gather", "e zero", "f", axis=0),
        node("Concat", "f rest", "g", axis=0),
        node("Reshape", "d g", "h"),
        node("Gemm", "h fc.weight fc.bias", "y", transB=1),
    ]
    arrays = [array(n, v) for n, v in weights.items()]
    arrays += [array("zero", [0], np.int64), array("rest", [-1], np.int64)]
    return model(
        nodes,
        [port("x", FLOAT, ["batch", 1, 6, 6])],
        [port("y", FLOAT, ["batch", 3])],
        tuple(arrays),
    )
