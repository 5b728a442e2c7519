"""``torch.onnx``: models written by ``disttrain.onnx``, under both spellings of PyTorch."""

from __future__ import annotations

import enum
import importlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ... import tree
from ...core import Tensor
from ...errors import CaptureError, ConfigError, ExportError
from ..publish import Shim


class TrainingMode(enum.Enum):
    """In which mode a module is exported (``dynamo=False``)."""

    EVAL = 0
    PRESERVE = 1
    TRAINING = 2


class OperatorExportTypes(enum.Enum):
    """Which operators a model may have: ONNX's own."""

    ONNX = 0
    ONNX_ATEN = 1
    ONNX_ATEN_FALLBACK = 2
    ONNX_FALLTHROUGH = 3


class OnnxExporterWarning(UserWarning):
    """What an exporter warns of; nothing here does."""


_MODES = {TrainingMode.EVAL: False, TrainingMode.PRESERVE: None, TrainingMode.TRAINING: True}


def export(
    model: Any, args: Any = (), f: Any = None, *, kwargs: dict[str, Any] | None = None,
    verbose: bool | None = None, input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None, opset_version: int | None = None,
    dynamo: bool = True, external_data: bool | None = None, dynamic_shapes: Any = None,
    custom_translation_table: Mapping | None = None, report: bool = False, optimize: bool = True,
    verify: bool = False, profile: bool = False, dump_exported_program: bool = False,
    artifacts_dir: str | os.PathLike = ".", export_params: bool = True,
    keep_initializers_as_inputs: bool = False, dynamic_axes: Mapping[str, Any] | None = None,
    training: TrainingMode = TrainingMode.EVAL,
    operator_export_type: OperatorExportTypes = OperatorExportTypes.ONNX,
    do_constant_folding: bool = True, custom_opsets: Mapping[str, int] | None = None,
    export_modules_as_functions: Any = False, autograd_inlining: bool = True,
) -> Any:  # fmt: skip
    """``model`` as a model of ONNX, written to ``f``: see ``disttrain.onnx.export``. With
    ``dynamo`` modules run in the mode that they are in, and the result is an ``ONNXProgram``;
    without it ``training`` says the mode, and nothing is given back.

    ``external_data``: parameters in a file of their own (None, what PyTorch has not: where one
    file has no room for them).
    """
    asked = {
        "custom_translation_table": custom_translation_table, "custom_opsets": custom_opsets,
        "export_modules_as_functions": export_modules_as_functions, "report": report,
        "profile": profile, "dump_exported_program": dump_exported_program,
    }  # fmt: skip
    for name, value in asked.items():
        if value:
            raise ConfigError(
                f"torch.onnx.export: {name}={value!r} given, which is not to be had here; leave it "
                "out (the result's exported_program and print() show what was written)"
            )
    if operator_export_type is not OperatorExportTypes.ONNX:
        raise ConfigError(f"torch.onnx.export: operator_export_type={operator_export_type} given; "
                          "needed is OperatorExportTypes.ONNX")  # fmt: skip
    if f is None and not dynamo:
        raise ConfigError("torch.onnx.export: f=None given with dynamo=False; needed is a path")
    args, kwargs = _arguments(args, kwargs)
    program = onnx_package().export(
        model, args, f, kwargs=kwargs, input_names=input_names, output_names=output_names,
        dynamic=_dynamic(dynamic_shapes, dynamic_axes, input_names, output_names),
        opset_version=opset_version, export_params=export_params,
        keep_initializers_as_inputs=keep_initializers_as_inputs,
        do_constant_folding=do_constant_folding, external_data=external_data,
        train=None if dynamo else _MODES[training],
    )  # fmt: skip
    if verbose:
        print(program)
    if verify:
        _verify(program, args, kwargs)
    return program if dynamo else None


def onnx_package() -> Any:
    """``disttrain.onnx``, which needs the package ``onnx``."""
    return importlib.import_module("disttrain.onnx")


def _arguments(args: Any, kwargs: Any) -> tuple[tuple, dict | None]:
    """Arguments as a tuple and a dict; a last one that is a dict is of names, where there are no
    others."""
    args = tuple(args) if isinstance(args, (tuple, list)) else (args,)
    if not kwargs and args and isinstance(args[-1], dict):
        return args[:-1], args[-1]
    return args, kwargs


def _dynamic(shapes: Any, axes: Any, inputs: Any, outputs: Any) -> Any:
    """What ``dynamic_shapes`` or ``dynamic_axes`` says, in our words."""
    if shapes is not None or not axes:
        return shapes
    found: dict[str, dict[int, str]] = {}
    for name, dims in axes.items():
        if name in (outputs or ()) and name not in (inputs or ()):
            continue  # a result's sizes follow from those of inputs
        named = dims if isinstance(dims, Mapping) else {
            d: f"{name}_dynamic_axes_{i}" for i, d in enumerate(dims, 1)}  # fmt: skip
        found[name] = {d: _identifier(text) for d, text in named.items()}
    return found


def _identifier(text: str) -> str:
    """A dimension's name, of which sizes can be computed."""
    made = "".join(c if c.isalnum() or c == "_" else "_" for c in str(text))
    return made if made.isidentifier() else f"_{made}"


def _verify(program: Any, args: tuple, kwargs: dict | None) -> None:
    """Compare what a runtime gives with what the program does."""
    told = program.exported_program(*args, **(kwargs or {}))
    want = [t for t in tree.leaves(told) if isinstance(t, Tensor)]
    for ours, theirs in zip(want, program(*args, **(kwargs or {})), strict=True):
        a, b = (t.detach().array for t in (ours, theirs))
        if not np.allclose(a, b, rtol=1e-3, atol=1e-5, equal_nan=True):
            raise ExportError("torch.onnx.export: verify: onnxruntime's results differ from ours "
                              f"by up to {np.max(np.abs(a - b))}")  # fmt: skip


def is_in_onnx_export() -> bool:
    """Whether a model is being written: never asked for by what is captured here."""
    return False


def modules() -> dict[str, Shim]:
    """``torch.onnx`` and ``torch.onnx.errors``."""
    errors = Shim("torch.onnx.errors").give(
        OnnxExporterError=CaptureError, UnsupportedOperatorError=ExportError,
        SymbolicValueError=ExportError, OnnxExporterWarning=OnnxExporterWarning,
    )  # fmt: skip
    names = Shim("torch.onnx").later(lambda shim: shim.give(ONNXProgram=onnx_package().ONNXProgram))
    names.give(
        export=export, is_in_onnx_export=is_in_onnx_export, OnnxExporterError=CaptureError,
        TrainingMode=TrainingMode, OperatorExportTypes=OperatorExportTypes,
        producer_name="disttrain",
    )  # fmt: skip
    return {"torch.onnx": names, "torch.onnx.errors": errors}


__all__ = ["OnnxExporterWarning", "OperatorExportTypes", "TrainingMode", "export", "modules"]
