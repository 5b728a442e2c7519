"""Graphs of ONNX files, written by hand, as TensorBoard's."""

from __future__ import annotations

import random

import pytest

from disttrain.errors import SerializationError
from disttrain.metrics import SummaryWriter, onnx_graph
from disttrain.protobuf import integer, nested, single, string


def value(name, *sizes):
    dims = b"".join(nested(1, integer(1, n)) for n in sizes)
    kind = nested(1, integer(1, 1) + nested(2, dims))
    return string(1, name) + nested(2, kind)


ALPHA = string(1, "alpha") + single(2, 0.5) + integer(20, 1)
NODE = string(1, "x") + string(1, "w") + string(2, "y") + string(4, "Gemm") + nested(5, ALPHA)
GRAPH = nested(1, NODE) + nested(11, value("x", 2, 3)) + nested(12, value("y", 2))
MODEL = integer(1, 8) + nested(7, GRAPH)


def test_inputs_results_and_operations(tmp_path):
    (tmp_path / "m.onnx").write_bytes(MODEL)
    message = onnx_graph.definition(tmp_path / "m.onnx")
    nodes = onnx_graph._fields(message)[1]
    found = [onnx_graph._fields(n) for n in nodes]
    assert [(n[1][0], n[2][0]) for n in found] == [
        (b"x", b"Variable"), (b"y", b"Variable"), (b"y", b"Gemm"),
    ]  # fmt: skip
    assert found[2][3] == [b"x", b"w"]
    with SummaryWriter(tmp_path / "log") as writer:
        writer.add_onnx_graph(tmp_path / "m.onnx")
    (events,) = (tmp_path / "log").iterdir()
    assert b"Gemm" in events.read_bytes()


def test_other_and_damaged_files_are_refused(tmp_path):
    path, rng = tmp_path / "m.onnx", random.Random(0)
    for data in (b"", b"\xff" * 20, b"text of another kind", MODEL[:-1], integer(1, 8)):
        path.write_bytes(data)
        with pytest.raises(SerializationError, match="no model in ONNX's format"):
            onnx_graph.definition(path)
    for _ in range(500):
        damaged = bytearray(MODEL)
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        path.write_bytes(damaged)
        try:
            onnx_graph.definition(path)
        except SerializationError:
            continue
