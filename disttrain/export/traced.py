"""Traced functions of an object as programs in a folder, and an object of these again, which needs
none of the code: TensorFlow's saved models, over ``disttrain.graphs``."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from .. import tree
from ..core.tensor import Tensor
from ..errors import SerializationError
from ..graphs import Function, Trace
from ..serialize.layout import load_json
from .exporting import export
from .files import load_program

DEFAULT = "serving_default"
_INDEX, _FORMAT, _VERSION = "saved_model.json", "disttrain.saved_model", 1


def _traces(obj: Any, signatures: Any) -> tuple[dict[str, Trace], dict[str, str]]:
    """The functions to be saved, by name, and which of them each signature is."""
    found: dict[str, Trace] = {}
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


def _trace(fn: Any) -> Trace:
    if isinstance(fn, Trace):
        return fn
    if not isinstance(fn, Function):
        raise ValueError(f"tf.saved_model.save: {fn!r:.80} given; a tf.function or one of its "
                         "concrete functions is needed")  # fmt: skip
    if fn.input_signature is None and fn.traces:
        last: Any = list(fn.traces)[-1]
        return last  # type: ignore[no-any-return]
    made: Trace = fn.trace_of()
    return made


class Covers:
    """Saves and loads, where tensors have covers: ``wrap`` makes one, ``convert`` makes one of any
    value."""

    def __init__(self, wrap: Callable[[Any], Any], convert: Callable[[Any], Any]) -> None:
        self.wrap, self.convert = wrap, convert

    def save(self, obj: Any, export_dir: Any, signatures: Any = None, options: Any = None) -> None:
        """Write the functions of ``obj`` that have an input signature, or were traced, to the
        folder ``export_dir``; ``signatures``: functions by the names under which they are served.
        Variables are in the programs, as they are now."""
        folder = os.fspath(export_dir)
        found, names = _traces(obj, signatures)
        if not found:
            raise ValueError("tf.saved_model.save: there is no tf.function with an input "
                             "signature, or that was called; nothing can be saved")  # fmt: skip
        index: dict[str, Any] = {"format": _FORMAT, "version": _VERSION, "signatures": names}
        index["functions"] = {}
        for at, (name, trace) in enumerate(found.items()):
            self._program(trace).save(os.path.join(folder, f"function_{at}"))
            index["functions"][name] = f"function_{at}"
        with open(os.path.join(folder, _INDEX), "w", encoding="utf-8") as f:
            json.dump(index, f)

    def _program(self, trace: Any) -> Any:
        """The program of a trace, whose unknown sizes may be any."""
        leaves = tree.leaves(trace.structured_input_signature[0])
        specs = [
            (s.name or f"args_{i}", s)
            for i, s in enumerate(leaf for leaf in leaves if hasattr(leaf, "example"))
        ]
        examples = {name: spec.example(2) for name, spec in specs}
        dynamic = {
            name: {d: f"{name}_{d}" for d, n in enumerate(spec.shape or ()) if n is None}
            for name, spec in specs
        }

        def run(**given: Any) -> Any:
            out = trace.run([self.wrap(given[name]) for name, _ in specs])
            return tree.map(lambda v: v._value if hasattr(v, "_value") else v, out)

        return export(run, (), examples, dynamic=dynamic, train=None)

    def load(self, export_dir: Any, tags: object = None, options: object = None) -> Loaded:
        """The object in the folder ``export_dir``, as ``save`` wrote it."""
        folder = os.fspath(export_dir)
        if not contains_saved_model(folder):
            raise OSError(f"SavedModel file does not exist at: {folder}/{_INDEX}")
        where = f"tf.saved_model.load: {folder}"
        with open(os.path.join(folder, _INDEX), "rb") as f:
            index = load_json(f.read(1 << 20), where)
        functions, signatures = _checked(index, where)
        programs = {n: load_program(os.path.join(folder, p)) for n, p in functions.items()}
        return Loaded(
            {name: Restored(program, self) for name, program in programs.items()},
            {word: Signature(programs[name], self) for word, name in signatures.items()},
        )


def _checked(index: Any, where: str) -> tuple[dict[str, str], dict[str, str]]:
    """The parts of an index that was read from a folder."""
    parts: list[Any] = [
        index.get(k) if type(index) is dict else None for k in ("functions", "signatures")
    ]
    if any(type(part) is not dict for part in parts) or index.get("version") != _VERSION:
        raise SerializationError(f"{where}: {_INDEX} is damaged, or of a newer version")
    functions, signatures = parts
    for name, part in functions.items():
        number = part.removeprefix("function_") if type(part) is str else ""
        if not (number.isdecimal() and part == f"function_{number}" and name.isidentifier()):
            raise SerializationError(f"{where}: {_INDEX} names {name!r:.60}: {part!r:.60}")
    if not all(type(n) is str and n in functions for n in signatures.values()):
        raise SerializationError(f"{where}: {_INDEX}: a signature is of no function")
    return functions, signatures


class Restored:
    """A function that was loaded: called with tensors by position or by name."""

    def __init__(self, program: Any, covers: Covers) -> None:
        self.program, self.covers = program, covers

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        inputs = [v.name for v in self.program.inputs]
        given = dict(zip(inputs, args, strict=False)) | kwargs
        plain = {name: self.covers.convert(value)._value for name, value in given.items()}
        found = self.program(**plain)
        return tree.map(lambda v: self.covers.wrap(v) if isinstance(v, Tensor) else v, found)


class Signature(Restored):
    """The same as it is served: a dict of results."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        found = super().__call__(*args, **kwargs)
        if isinstance(found, dict):
            return found
        values = found if isinstance(found, (list, tuple)) else [found]
        return {f"output_{i}": v for i, v in enumerate(values)}


class Loaded:
    """What ``load`` gives: the saved functions as attributes, and ``signatures``."""

    def __init__(self, functions: dict[str, Restored], signatures: dict[str, Signature]) -> None:
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


def names(wrap: Callable[[Any], Any], convert: Callable[[Any], Any]) -> dict[str, Any]:
    """``tf.saved_model``'s names, for such covers."""
    covers = Covers(wrap, convert)
    return {
        "save": covers.save, "load": covers.load, "contains_saved_model": contains_saved_model,
        "DEFAULT_SERVING_SIGNATURE_DEF_KEY": DEFAULT, "SERVING": "serve",
        "SaveOptions": dict, "LoadOptions": dict,
    }  # fmt: skip


__all__ = ["Covers", "Loaded", "Restored", "Signature", "contains_saved_model", "names"]
