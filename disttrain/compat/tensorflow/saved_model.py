"""``tf.saved_model``: the traced functions of an object as programs in a folder, and an object of
these again, which needs none of the code. The programs are ``disttrain.export``'s."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Mapping
from typing import Any

from ... import tree
from ...errors import SerializationError
from ..publish import Shim
from .function import ConcreteFunction, Function
from .tensor import convert, wrap

DEFAULT = "serving_default"
_INDEX, _FORMAT, _VERSION = "saved_model.json", "disttrain.saved_model", 1


def _traces(obj: Any, signatures: Any) -> tuple[dict[str, ConcreteFunction], dict[str, str]]:
    """The functions to be saved, by name, and which of them each signature is."""
    found: dict[str, ConcreteFunction] = {}
    for name in dir(type(obj)):
        value = getattr(obj, name, None) if name == "__call__" or name[:2] != "__" else None
        if isinstance(value, Function) and (value.input_signature is not None or value.traces):
            found[name] = _trace(value)
    for name, value in getattr(obj, "__dict__", {}).items():
        if isinstance(value, Function) and (value.input_signature is not None or value.traces):
            found[name] = _trace(value)
    if signatures is None:
        signatures = {DEFAULT: found["__call__"]} if "__call__" in found else {}
    elif not isinstance(signatures, Mapping):
        signatures = {DEFAULT: signatures}
    names = {}
    for word, fn in signatures.items():
        trace = _trace(fn)
        names[word] = next((n for n, t in found.items() if t is trace), f"signature_{word}")
        found[names[word]] = trace
    return found, names


def _trace(fn: Any) -> ConcreteFunction:
    if isinstance(fn, ConcreteFunction):
        return fn
    if not isinstance(fn, Function):
        raise ValueError(f"tf.saved_model.save: {fn!r:.80} given; a tf.function or one of its "
                         "concrete functions is needed")  # fmt: skip
    if fn.input_signature is None and fn.traces:
        found: ConcreteFunction = list(fn.traces)[-1]
        return found
    made: ConcreteFunction = fn.get_concrete_function()
    return made


def save(obj: Any, export_dir: Any, signatures: Any = None, options: object = None) -> None:
    """Write the functions of ``obj`` that have an input signature, or were traced, to the folder
    ``export_dir``; ``signatures``: functions by the names under which they are served. Variables
    are in the programs, as they are now."""
    folder = os.fspath(export_dir)
    found, names = _traces(obj, signatures)
    if not found:
        raise ValueError("tf.saved_model.save: there is no tf.function with an input signature, or "
                         "that was called; nothing can be saved")  # fmt: skip
    index: dict[str, Any] = {"format": _FORMAT, "version": _VERSION, "signatures": names}
    index["functions"] = {}
    for at, (name, trace) in enumerate(found.items()):
        _program(trace).save(os.path.join(folder, f"function_{at}"))
        index["functions"][name] = f"function_{at}"
    with open(os.path.join(folder, _INDEX), "w", encoding="utf-8") as f:
        json.dump(index, f)


def _program(trace: ConcreteFunction) -> Any:
    """The program of a trace, whose unknown sizes may be any."""
    specs = [(s.name or f"args_{i}", s) for i, s in enumerate(_specs(trace))]
    examples = {name: spec.example(2) for name, spec in specs}
    dynamic = {
        name: {d: f"{name}_{d}" for d, n in enumerate(spec.shape or ()) if n is None}
        for name, spec in specs
    }

    def run(**given: Any) -> Any:
        out = trace.run([wrap(given[name]) for name, _ in specs])
        return tree.map(lambda v: v._value if hasattr(v, "_value") else v, out)

    export = importlib.import_module("disttrain.export.exporting")
    return export.export(run, (), examples, dynamic=dynamic, train=None)


def _specs(trace: ConcreteFunction) -> list[Any]:
    leaves = tree.leaves(trace.structured_input_signature[0])
    return [leaf for leaf in leaves if hasattr(leaf, "example")]


class _Restored:
    """A function that was loaded: called with tensors by position or by name."""

    def __init__(self, program: Any) -> None:
        self.program = program

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        inputs = [v.name for v in self.program.inputs]
        given = dict(zip(inputs, args, strict=False)) | kwargs
        plain = {name: convert(value)._value for name, value in given.items()}
        return tree.map(lambda v: wrap(v) if hasattr(v, "meta") else v, self.program(**plain))


class _Signature(_Restored):
    """The same as it is served: a dict of results."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        found = super().__call__(*args, **kwargs)
        if isinstance(found, dict):
            return found
        values = found if isinstance(found, (list, tuple)) else [found]
        return {f"output_{i}": v for i, v in enumerate(values)}


class Loaded:
    """What ``load`` gives: the saved functions as attributes, and ``signatures``."""

    def __init__(self, functions: dict[str, _Restored], signatures: dict[str, _Signature]) -> None:
        self.signatures = signatures
        self._called = functions.get("__call__")
        for name, fn in functions.items():
            if name != "__call__":
                setattr(self, name, fn)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._called is None:
            raise TypeError("the object that was saved has no __call__ that is a tf.function")
        return self._called(*args, **kwargs)


def contains_saved_model(export_dir: Any) -> bool:
    """Whether there is one in a folder."""
    return os.path.isfile(os.path.join(os.fspath(export_dir), _INDEX))


def load(export_dir: Any, tags: object = None, options: object = None) -> Loaded:
    """The object in the folder ``export_dir``, as ``save`` wrote it."""
    folder = os.fspath(export_dir)
    if not contains_saved_model(folder):
        raise OSError(f"SavedModel file does not exist at: {folder}/{_INDEX}")
    where = f"tf.saved_model.load: {folder}"
    with open(os.path.join(folder, _INDEX), "rb") as f:
        layout = importlib.import_module("disttrain.serialize.layout")
        index = layout.load_json(f.read(1 << 20), where)
    functions = index.get("functions") if type(index) is dict else None
    if type(functions) is not dict or index.get("version") != _VERSION:
        raise SerializationError(f"{where}: {_INDEX} is damaged, or of a newer version")
    files = importlib.import_module("disttrain.export.files")
    programs = {}
    for name, part in functions.items():
        if type(part) is not str or part != f"function_{part.rpartition('_')[2]}" or (
            not part.rpartition("_")[2].isdigit() or not (name.isidentifier())
        ):  # fmt: skip
            raise SerializationError(f"{where}: {_INDEX} names {name!r:.60}: {part!r:.60}")
        programs[name] = files.load_program(os.path.join(folder, part))
    signatures = {word: _Signature(programs[name]) for word, name in index["signatures"].items()}
    return Loaded({name: _Restored(p) for name, p in programs.items()}, signatures)


def module() -> Shim:
    """``tf.saved_model``."""
    return Shim("tensorflow.saved_model").give(
        save=save, load=load, contains_saved_model=contains_saved_model,
        DEFAULT_SERVING_SIGNATURE_DEF_KEY=DEFAULT, SERVING="serve",
        SaveOptions=dict, LoadOptions=dict,
    )  # fmt: skip


__all__ = ["Loaded", "contains_saved_model", "load", "module", "save"]
