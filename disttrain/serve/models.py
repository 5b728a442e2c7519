"""Models from files: saved programs, and ONNX where it is asked for; and whether rows of a batch
leave each other alone, tried where the program does not say so (``rows``)."""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ConfigError, SerializationError
from . import rows
from .coding import dtype_of
from .signature import Signature, Spec, check_servable, joined_along

Run = Callable[[Mapping[str, np.ndarray]], Mapping[str, Any]]
_FREE = 3  # what named sizes are in a trial, where they may be that
# Of the largest value: what rounding explains. Rows that see each other differ by more.
_ALIKE = {"float16": 2e-2, "bfloat16": 1e-1}
_ALIKE_ELSE = 1e-4


@dataclass
class Model:
    """``run``: arrays by name into arrays by name."""

    signature: Signature
    run: Run


Opener = Callable[[str, str], Model]  # a name and a path


def open_program(name: str, path: str) -> Model:
    """A program that ``dt.export`` has saved."""
    program = importlib.import_module("disttrain.export").load_program(path)
    if program.writes:
        raise ConfigError(
            f"{name}: a call changes {program.writes[0][0]}, and what one request gets may "
            "not depend on others; export it with train=False"
        )
    dims = {key: (dim.min, dim.max) for key, dim in program.dims.items()}
    inputs, outputs = (
        tuple(Spec(value.name, value.dtype.name, _sizes(value.shape)) for value in values)
        for values in (program.inputs, program.outputs)
    )
    model = Model(Signature(inputs, outputs, dims), program.run)
    return tried(name, model, functools.partial(rows.apart, program))


def open_onnx(name: str, path: str) -> Model:
    """A model in ONNX, run by onnxruntime."""
    try:
        runtime = importlib.import_module("onnxruntime")
    except ImportError:
        raise ConfigError("--onnx: onnxruntime is missing: pip install 'disttrain[onnx]'") from None
    settings = runtime.SessionOptions()
    settings.log_severity_level = 3
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    try:
        session = runtime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
    except Exception as error:  # of many types, which are onnxruntime's own
        raise SerializationError(f"{path}: onnxruntime does not take it: {error}") from None
    inputs, outputs = (
        tuple(Spec(v.name, _onnx_type(name, v), _onnx_sizes(v.shape)) for v in values)
        for values in (session.get_inputs(), session.get_outputs())
    )
    names = [s.name for s in outputs]
    dims = {size: (0, None) for spec in inputs for size in spec.shape if isinstance(size, str)}

    def run(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return dict(zip(names, session.run(names, dict(arrays))))

    return tried(name, Model(Signature(inputs, outputs, dims), run))


def tried(
    name: str, model: Model, apart: Callable[[str], bool | None] = lambda batch: None
) -> Model:
    """The model, with the size that its requests may be joined along. ``apart`` says whether rows
    along it are known to be for themselves (None: it is tried)."""
    signature = model.signature
    check_servable(name, (*signature.inputs, *signature.outputs))
    batch = joined_along(signature.inputs, signature.outputs, signature.dims)
    if batch:
        known = apart(batch)
        if not (independent(model, batch) if known is None else known):
            batch = ""
    return Model(replace(signature, batch=batch), model.run)


def independent(model: Model, batch: str) -> bool:
    """Does each row of a batch give what it gives alone? Tried with random numbers; a program that
    does not take those is not joined."""
    least, most = model.signature.dims[batch]
    if least > 1 or (most is not None and most < 2):
        return False
    rng = np.random.default_rng(0)
    inputs = {
        spec.name: _drawn(rng, spec, model.signature, batch) for spec in model.signature.inputs
    }
    try:
        whole = model.run(inputs)
        parts = [model.run({k: v[i : i + 1] for k, v in inputs.items()}) for i in range(2)]
    except Exception:  # whatever a program says to random numbers
        return False
    return all(
        len(whole[spec.name]) == 2
        and all(_alike(whole[spec.name][i : i + 1], parts[i][spec.name]) for i in range(2))
        for spec in model.signature.outputs
    )


def _alike(a: Any, b: Any) -> bool:
    if a.dtype.kind in "iub":
        return a.shape == b.shape and bool((a == b).all())
    least = _ALIKE.get(a.dtype.name, _ALIKE_ELSE)
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if a.shape != b.shape:
        return False
    span = max(float(np.nanmax(np.abs(b), initial=0.0)), 1e-30)
    return bool(np.allclose(a, b, rtol=0.0, atol=least * span, equal_nan=True))


def _drawn(rng: np.random.Generator, spec: Spec, signature: Signature, batch: str) -> np.ndarray:
    sizes = [
        2 if s == batch else _free(signature, s) if isinstance(s, str) else s for s in spec.shape
    ]
    dtype = dtype_of(spec.dtype)
    if dtype.kind in "iub":
        return rng.integers(0, 2, sizes).astype(dtype)
    return rng.standard_normal(sizes).astype(dtype)


def _free(signature: Signature, size: str) -> int:
    """A value for a named size; of an expression of sizes any, which the program may refuse."""
    least, most = signature.dims.get(size, (_FREE, None))
    return max(least, _FREE if most is None else min(_FREE, most))


def fingerprint(path: str) -> list[list[int]]:
    """Equal as long as nobody has replaced or changed the file, or a file of the folder."""
    root = Path(path)
    try:
        files = sorted(root.iterdir()) if root.is_dir() else [root]
        return [
            [found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size]
            for found in map(os.stat, files)
        ]
    except OSError:
        return []


def _sizes(shape: Any) -> tuple[int | str, ...]:
    return tuple(size if isinstance(size, int) else str(size) for size in shape)


_ONNX_TYPES = {"float": "float32", "double": "float64"}


def _onnx_type(name: str, value: Any) -> str:
    """``tensor(float)`` as numpy calls it."""
    inner = value.type.removeprefix("tensor(").removesuffix(")")
    if inner == value.type:
        raise ConfigError(f"{name}: {value.name} is a {value.type}; a tensor is needed")
    return _ONNX_TYPES.get(inner, inner)


def _onnx_sizes(shape: Any) -> tuple[int | str, ...]:
    """Sizes without a name are nobody else's."""
    return tuple(s if isinstance(s, int) else s or f"unknown_{k}" for k, s in enumerate(shape))
