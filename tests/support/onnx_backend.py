"""ONNX's own cases, which come with its package: models of a node or of a few, with numbers."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

import disttrain as dt
from disttrain.onnx.reading.elements import held

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
# What is not held, and why.
DRAWN = "what is drawn is compared with numbers that somebody else drew"
LEFT_OUT = {
    "test_bernoulli": DRAWN,
    "test_training_dropout_default": DRAWN,
    "test_training_dropout": DRAWN,
    "test_image_decoder": "no decoder of pictures is among our dependencies",
    "test_gradient_of": "an operator that looks at the graph around it",
    "test_resize_downsample_scales_linear_align_corners": "onnxruntime and PyTorch do as we do",
    "test_resize_downsample_scales_cubic_align_corners": "onnxruntime and PyTorch do as we do",
}
_HELD_ALL_THE_SAME = ("test_training_dropout_zero_ratio", "test_training_dropout_default_zero")


def is_left_out(name: str) -> bool:
    """Whether a case is none of those that are held."""
    if name.startswith("test_training_dropout_zero") or name.startswith(_HELD_ALL_THE_SAME):
        return False
    if name.startswith("test_training_dropout_default_mask"):
        return True
    return any(name.startswith(word) for word in LEFT_OUT)


@functools.cache
def cases() -> dict[str, Any]:
    """All of them by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {t.name: t for kind in KINDS for t in load_model_tests(kind=kind)}


def one_of_each_operator() -> list[str]:
    """Names of cases: the first two of each operator."""
    found: dict[tuple, list[str]] = {}
    for name, case in cases().items():
        if case.model is not None and not is_left_out(name) and "expanded" not in name:
            operators = tuple(sorted({n.op_type for n in case.model.graph.node}))
            found.setdefault(operators, []).append(name)
    return [name for names in found.values() for name in names[:2]]


def check(name: str) -> None:
    """Run a case, and compare."""
    case = cases()[name]
    for model, inputs, outputs in _runs(case):
        module = dt.onnx.load(model)
        with dt.no_grad():
            found = module(*map(_given, inputs))
        found = (found,) if len(module.outputs) == 1 else found
        assert len(found) == len(outputs)
        for a, b in zip(found, outputs):
            _compare(_plain(a), _plain(b), max(case.rtol, 1e-3), max(case.atol, 1e-6))


def _runs(case: Any) -> Iterator[tuple]:
    if case.model is not None:
        for inputs, outputs in case.data_sets:
            yield case.model, inputs, outputs
        return
    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    for data in sorted(p for p in folder.iterdir() if p.is_dir()):
        yield (
            model,
            _read(data, "input", model.graph.input),
            _read(data, "output", model.graph.output),
        )


def _read(folder: Path, what: str, ports: Any) -> list:
    """Numbers of files; inputs that are initializers, too, have none."""
    found = []
    for i, port in enumerate(ports):
        path = folder / f"{what}_{i}.pb"
        if not path.exists():
            break
        kind = port.type.WhichOneof("value")
        message, read = {
            "sequence_type": (onnx.SequenceProto, numpy_helper.to_list),
            "optional_type": (onnx.OptionalProto, numpy_helper.to_optional),
        }.get(kind, (onnx.TensorProto, numpy_helper.to_array))
        found.append(read(message.FromString(path.read_bytes())))
    return found


def _array(value: Any) -> np.ndarray:
    array = np.asarray(
        numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value
    )
    if array.dtype.kind == "S":
        array = array.astype(str)
    return array.astype(object) if array.dtype.kind in "OU" else held(array)


def _given(value: Any) -> Any:
    if value is None or isinstance(value, list | tuple):
        return None if value is None else [_given(v) for v in value]
    array = _array(value)
    return array if array.dtype == object else dt.tensor(array)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, list | tuple):
        return None if value is None else [_plain(v) for v in value]
    return value.numpy() if isinstance(value, dt.Tensor) else _array(value)


def _compare(a: Any, b: Any, rtol: float, atol: float) -> None:
    if isinstance(b, list):
        assert isinstance(a, list) and len(a) == len(b)
        for x, y in zip(a, b):
            _compare(x, y, rtol, atol)
        return
    if b is None:
        assert a is None
        return
    assert a.shape == b.shape and a.dtype == b.dtype
    if b.dtype == object:
        assert (a == b).all()
        return
    if b.dtype.itemsize == 2 and b.dtype.name in ("float16", "bfloat16"):
        rtol = atol = {"float16": 2e-3, "bfloat16": 1.6e-2}[
            b.dtype.name
        ]  # two units of the last place
    if b.dtype.kind not in "iubfc":
        a, b = a.astype(np.float32), b.astype(np.float32)
    np.testing.assert_allclose(a, b, rtol, atol)
