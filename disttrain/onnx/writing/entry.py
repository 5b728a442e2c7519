"""``export``: a function, a module or a program as a model of ONNX."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from ...core.tensor import wrap
from ...errors import CaptureError, ConfigError
from ...export import Program, vocabulary
from ...export.exporting import Export
from ...export.exporting import export as to_program
from . import model as models
from .conversion import whole
from .rules import pairs
from .types import Ref, check_opset

LEAST, NEWEST = 17, min(27, onnx.defs.onnx_opset_version())  # what onnxruntime takes
DEFAULT = min(23, NEWEST)  # the first that has attention as one operator
DRAWING = 21  # the last whose operators that draw numbers onnxruntime has


class ONNXProgram:
    """A model of ONNX, with the program that it was made of. ``model_proto`` is the model itself
    (of the package ``onnx``); ``save`` writes it; a call runs it by onnxruntime."""

    def __init__(self, program: Program, model: Any, arrays: dict[str, np.ndarray]) -> None:
        self.exported_program, self._model, self._arrays = program, model, arrays
        self.session: Any = None

    @property
    def model_proto(self) -> Any:
        """The model, with all its tensors."""
        return models.with_tensors(self._model, self._arrays)

    @property
    def model(self) -> Any:
        """``model_proto``."""
        return self.model_proto

    @property
    def input_names(self) -> list[str]:
        """The names of its inputs."""
        return [v.name for v in self._model.graph.input]

    @property
    def output_names(self) -> list[str]:
        """The names of its results."""
        return [v.name for v in self._model.graph.output]

    def save(
        self, destination: str | os.PathLike | Any, *, include_initializers: bool = True,
        keep_initializers_as_inputs: bool = False, external_data: bool | None = None,
    ) -> None:  # fmt: skip
        """Write it to a path, or a file that is open for bytes. ``external_data``: parameters in a
        file of their own, ``{destination}.data`` (None: where they are over 2 GB)."""
        model, arrays = self._model, self._arrays
        if not include_initializers or keep_initializers_as_inputs:
            model = _taking(model, arrays)
        if not include_initializers:
            arrays = {}
        if hasattr(destination, "write"):
            if external_data or models.size_of(arrays) >= models.LIMIT:
                raise ConfigError(
                    "onnx.export: a file object given for a model of "
                    f"{models.size_of(arrays)} bytes, whose parameters go to a file of their own; "
                    "needed is a path"
                )
            destination.write(models.with_tensors(model, arrays).SerializeToString())
            return
        models.write(model, arrays, os.fspath(destination), external_data)

    def check(self) -> None:
        """Have ``onnx.checker`` see it: operators, types and shapes. Large parameters stand as
        inputs there, so that none is copied."""
        large = {n: a for n, a in self._arrays.items() if a.nbytes > models.SMALL}
        rest = {n: a for n, a in self._arrays.items() if n not in large}
        bare = models.with_tensors(_taking(self._model, large), rest)
        onnx.checker.check_model(bare, full_check=True)

    def optimize(self) -> None:
        """Nothing: constants are folded, and what nothing uses is out, when it is made."""

    def apply_weights(self, state_dict: Mapping[str, Any]) -> None:
        """Other numbers for parameters, by name."""
        for name, value in state_dict.items():
            array, old = np.asarray(getattr(value, "array", value)), self._arrays.get(name)
            if old is None or (array.shape, array.dtype) != (old.shape, old.dtype):
                needed = "no such one" if old is None else f"{old.dtype}{list(old.shape)}"
                raise ConfigError(
                    f"apply_weights: {name} of {array.dtype}{list(array.shape)} given; the model "
                    f"has {needed}"
                )
        self._arrays |= {n: np.asarray(getattr(v, "array", v)) for n, v in state_dict.items()}
        self.session = None

    def initialize_inference_session(self, initializer: Callable | None = None) -> None:
        """Make the session that calls run in."""
        make = _session if initializer is None else initializer
        if models.size_of(self._arrays) < models.LIMIT:
            self.session = make(self.model_proto.SerializeToString())
            return
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.onnx")
            self.save(path)
            self.session = make(path)

    def release(self) -> None:
        """Let go of the session."""
        self.session = None

    def __call__(self, *args: Any, **kwargs: Any) -> tuple:
        """The results, as Tensors, by onnxruntime."""
        if self.session is None:
            self.initialize_inference_session()
        program = self.exported_program
        given = zip(program.inputs, program._leaves(args, kwargs), strict=True)
        arrays = [program._tensor(v, where, t).detach().array for v, (where, t) in given]
        program.sizes({v.name: a.shape for v, a in zip(program.inputs, arrays, strict=True)})
        found = self.session.run(None, dict(zip(self.input_names, arrays, strict=True)))
        return tuple(wrap(np.asarray(a)) for a in found)

    def __repr__(self) -> str:
        return str(onnx.printer.to_text(self._model))


def _session(model: bytes | str) -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise ConfigError(
            "onnx: onnxruntime is missing, which runs models: pip install 'disttrain[onnx]'"
        ) from None
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])


def _taking(model: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """The model with its parameters among its inputs."""
    full = type(model)()
    full.CopyFrom(model)
    infos = [models.info(Ref(n, a.dtype, a.shape)) for n, a in arrays.items()]
    full.graph.input.extend(infos)
    return full


def export(
    model: Any, args: Any = (), f: Any = None, *, kwargs: Mapping[str, Any] | None = None,
    dynamic: Any = None, input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None, opset_version: int | None = None,
    export_params: bool = True, keep_initializers_as_inputs: bool = False,
    do_constant_folding: bool = True, external_data: bool | None = None,
    train: bool | None = False, check: bool = True,
) -> ONNXProgram:  # fmt: skip
    """``model`` (a module, a function, or a program of ``dt.export``) as a model of ONNX, written
    to ``f`` (a path or an open file) where that is given.

    ``args``, ``kwargs``: examples of its arguments. ``dynamic``: dimensions whose sizes may change,
    as of ``dt.export``. ``input_names``, ``output_names``: what inputs and results are called.
    ``opset_version``: of the operator set, 17 to 27 (where nothing is said 23,
    or 21 where numbers are drawn). ``export_params``:
    whether parameters are part of the file, or inputs. ``do_constant_folding``: whether what is
    made of constants is one. ``external_data``: parameters in a file of
    their own (None: where they are over 2 GB). ``train``: the mode in which modules run. ``check``:
    have ``onnx.checker`` see it.

    Parameters keep their names. What a call would change (statistics in training) is no part of
    the model. Raises ``ExportError``, which tells all operations that have no
    counterpart, with the modules and lines that they are in.
    """
    opset = check_opset(DEFAULT if opset_version is None else opset_version, LEAST, NEWEST)
    program = _program(model, args, kwargs, dynamic, train, input_names or ())
    if opset_version is None and any(_draws(node) for node in program.nodes):
        opset = DRAWING
    names = _names(program, input_names, output_names)
    made = _assembled(program, opset, names, do_constant_folding)
    if check:
        made.check()
    if f is not None:
        made.save(f, include_initializers=export_params, external_data=external_data,
                  keep_initializers_as_inputs=keep_initializers_as_inputs)  # fmt: skip
    return made


def _draws(node: Any) -> bool:
    prim = vocabulary.find(node.primitive)
    return prim is not None and prim.random


def _program(
    model: Any, args: Any, kwargs: Any, dynamic: Any, train: bool | None, names: Sequence[str]
) -> Program:
    """The program to write. ``dynamic`` may name inputs by the model's ``names``, too."""
    try:
        known = getattr(model, "program", None)
    except CaptureError:  # a script that was never called: the arguments are here
        known = None
    model = known if isinstance(known, Program) else model
    if isinstance(model, Program):
        if dynamic is not None:
            raise ConfigError(
                "onnx.export: dynamic given with a program, whose dimensions are what they are; "
                "give it to dt.export"
            )
        return model
    if isinstance(dynamic, Mapping) and names:
        own = dict(zip(names, Export(model, args, kwargs, None, train).names, strict=False))
        dynamic = {own.get(k, k) if isinstance(k, str) else k: v for k, v in dynamic.items()}
    return to_program(model, args, kwargs, dynamic=dynamic, train=train)


def _names(
    program: Program, inputs: Sequence[str] | None, outputs: Sequence[str] | None
) -> dict[str, str]:
    """What inputs and results are called in the model."""
    found: dict[str, str] = {}
    for what, given, values in (
        ("input_names", inputs, program.inputs), ("output_names", outputs, program.outputs)
    ):  # fmt: skip
        given = list(given or ())
        if len(given) > len(values) or len(set(given)) < len(given):
            raise ConfigError(
                f"onnx.export: {what}={given} given; needed at most {len(values)} names, all "
                f"different, for {[v.name for v in values]}"
            )
        if not all(isinstance(n, str) and n for n in given):
            raise ConfigError(f"onnx.export: {what}={given} given; needed are texts")
        found |= {v.name: n for v, n in zip(values, given, strict=False)}
    return _apart(program, found)


def _apart(program: Program, found: dict[str, str]) -> dict[str, str]:
    """The same, also where a result would have the name of an input or a parameter."""
    ins = {found.get(v.name, v.name) for v in program.inputs}
    kept = {*program.state, *program.constants}
    given = set(found.values())
    for name in sorted(given & kept):
        raise ConfigError(f"onnx.export: the name {name!r} given, which a parameter has")
    for v in program.outputs:
        name = found.get(v.name, v.name)
        if name in ins and name in given:
            raise ConfigError(f"onnx.export: the name {name!r} given to an input and to a result")
        while name in ins | kept:
            name = found[v.name] = f"{name}_out"
    return found


def _assembled(program: Program, opset: int, names: dict[str, str], fold: bool) -> ONNXProgram:
    made, inputs, outputs = whole(program, opset, names, fold)
    w = made.w
    models.renamed(w.ops, made.renamed)
    ends = [r.name for r in outputs]
    ops = models.pruned(models.merged(models.pruned(w.ops, ends), ends), ends)
    used = {n for op in ops for n in models.taken(op)}
    arrays = {n: t for n, t in w.values.items() if n in used and n not in {r.name for r in inputs}}
    refs = [pairs.opened(r) if pairs.is_complex(r) else r for r in made.env.values()]
    known = [Ref(made.renamed.get(r.name, r.name), r.dtype, r.shape) for r in refs]
    name = str(program.metadata.get("name", "")) or "main_graph"
    proto = models.assembled(ops, inputs, outputs, _once(known), opset, name)
    told = _told_sizes(program)
    if told:
        onnx.helper.set_model_props(proto, {"disttrain.sizes": "\n".join(told)})
    return ONNXProgram(program, proto, arrays)


def _told_sizes(program: Program) -> list[str]:
    """What must hold of sizes, which a model cannot check."""
    ranges = [f"{d.name}: {d.range()}" for d in program.dims.values() if d.min > 1 or d.max]
    return [*ranges, *(f"{relation} at {line}" for relation, line in program.relations)]


def _once(refs: Sequence[Ref]) -> list[Ref]:
    return list({r.name: r for r in refs}.values())


__all__ = ["DEFAULT", "LEAST", "NEWEST", "ONNXProgram", "export"]
