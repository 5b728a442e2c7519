"""Arithmetic of sizes as nodes."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from disttrain.export import Size
from disttrain.onnx.writing import model as models
from disttrain.onnx.writing.sizes import node_of
from disttrain.onnx.writing.types import INT64, Ref, Unmapped
from disttrain.onnx.writing.writer import Writer

TEXTS = [
    "n", "2*n + 1", "n*k - 3", "(n - 9) // 2", "-(n - k) // 3", "(n - 9) % 4", "n // k * k",
    "math.floor(n * 1.5)", "math.ceil(n / 4)", "math.trunc(n / 3)", "n ** 2 - k", "abs(k - n)",
    "-n + 5", "round(n / 2)", "n << 1",
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_an_expression_is_what_python_computes(text):
    shape = (Size("n"), Size("k"))
    x = Ref("x", np.dtype(np.float32), shape)
    w = Writer(21, sources={"n": (x, 0), "k": (x, 1)}, taken={"x", "out"})
    found = w.size(Size(text))
    w.node("Identity", found)
    w.ops[-1].outputs = ["out"]
    ops = models.pruned(w.ops, ["out"])
    proto = models.assembled(ops, [x], [Ref("out", INT64, ())], [], 21, "g")
    proto = models.with_tensors(proto, dict(w.values))
    onnx.checker.check_model(proto)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    for n, k in ((2, 3), (7, 4), (13, 5), (1, 1)):
        (got,) = session.run(None, {"x": np.zeros((n, k), np.float32)})
        assert got == Size(text).evaluate({"n": n, "k": k}), (text, n, k)


def test_what_is_no_size_is_told():
    w = Writer(21)
    for text in ("m", "n.shape", "open('x')", "[n]"):
        with pytest.raises(Unmapped):
            w.size(text)
    with pytest.raises(Unmapped, match="no arithmetic"):
        node_of("2 +")


def test_equal_sizes_are_written_once():
    x = Ref("x", np.dtype(np.float32), (Size("n"),))
    w = Writer(21, sources={"n": (x, 0)})
    assert w.size(Size("2*n")) is w.size(Size("2*n"))
    assert [op.kind for op in w.ops] == ["Shape", "Squeeze", "Mul"]
