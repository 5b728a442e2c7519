"""Models that are written are run by onnxruntime, and compared with what they were made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime

import disttrain as dt
from disttrain import nn, tree
from disttrain.core import Tensor
from disttrain.onnx.writing.entry import ONNXProgram, export

onnxruntime.set_default_logger_severity(4)  # it writes of what it raises


def operators(made: ONNXProgram) -> list[str]:
    """The kinds of nodes, in order."""
    return [node.op_type for node in made.model_proto.graph.node]


def tensors(result: Any) -> list[np.ndarray]:
    """The numbers of a result's tensors, in order."""
    return [t.detach().array for t in tree.leaves(result) if isinstance(t, Tensor)]


def differ(got: list, want: list, tol: float = 1e-5) -> str | None:
    """How results differ, None where they agree."""
    if len(got) != len(want):
        return f"{len(got)} results, not {len(want)}"
    for i, (a, b) in enumerate(zip(got, want)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"result {i}: {a.dtype}{list(a.shape)}, not {b.dtype}{list(b.shape)}"
        if not np.allclose(a, b, rtol=tol, atol=tol, equal_nan=True):
            return f"result {i} differs by {np.nanmax(np.abs(a.astype('f8') - b.astype('f8')))}"
    return None


def session(model: bytes) -> Any:
    """A session of one thread."""
    how = onnxruntime.SessionOptions()
    how.intra_op_num_threads = how.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model, how, providers=["CPUExecutionProvider"])


def written(model: Any, *given: tuple, tol: float = 1e-5, **how: Any) -> ONNXProgram:
    """``model`` as it is written for the first arguments ``given``; run for all of them, it gives
    what ``model`` does."""
    if isinstance(model, nn.Module):
        model.eval()
    made = export(model, given[0], **how)
    made.initialize_inference_session(session)
    for args in given:
        with dt.no_grad():
            want = tensors(model(*args, **(how.get("kwargs") or {})))
        got = tensors(made(*args, **(how.get("kwargs") or {})))
        wrong = differ(got, want, tol)
        assert wrong is None, f"{wrong}\n{made}"
    return made
