"""One node of onnxruntime's own domain, computed here and there."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto

import disttrain as dt

from .onnx_graphs import FLOAT, array, model, node, port

MICROSOFT = "com.microsoft"
INT32 = TensorProto.INT32


def beside(kind: str, given: list, outputs: str, used: str = "", **words: Any) -> None:
    """One node with arrays (None: left out) as its inputs, here and in onnxruntime."""
    names = [f"i{n}" if a is not None else "_" for n, a in enumerate(given)]
    inputs = tuple(array(n, a, a.dtype) for n, a in zip(names, given) if a is not None)
    made = model(
        [node(kind, " ".join(names), outputs, domain=MICROSOFT, **words)],
        [], [port(n, INT32 if n == "m" else FLOAT) for n in (used or outputs).split()], inputs,
        domains=(MICROSOFT,),
    )  # fmt: skip
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    want = onnxruntime.InferenceSession(made.SerializeToString(), options).run(None, {})
    found = list(dt.onnx.load(made).run({}).values())
    for a, b in zip(found, want, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype, (words, a.shape, b.shape)
        assert np.allclose(a, b, atol=2e-5), (kind, words, [g is not None for g in given])


def floats(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Numbers of a shape."""
    return rng.standard_normal(shape).astype(np.float32)
