"""Objects as folders: their traced functions as programs, over cells that the functions share.

    objects.json        the tree of objects; names, cells and programs of each function
    cells.safetensors   what the cells held
    0.dtp  1.dtp ...    a program for each trace: (arguments, cells) -> (result, cells)

A function that assigns to cells gives their new values, and what was loaded puts them there. A
program of other classes (TensorFlow's modules and variables) says by ``SavedObjects`` how those are
made. Nothing in a folder is code.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .. import tree
from ..autograd.cells import Cell
from ..core import Tensor
from ..core.grad_mode import enable_grad
from ..errors import ConfigError, DisttrainError, SerializationError, ShapeError
from ..graphs import CURRENT, Function, Symbol, Trace, outside
from ..graphs.graph import TRIAL
from ..serialize import load, save
from ..serialize.files import write_file
from ..serialize.layout import load_json
from .exporting import export
from .files import load_program
from .program import Program

TABLE, CELLS, VERSION = "objects.json", "cells.safetensors", 1
_FILE = re.compile(r"\d+\.dtp\Z")
_CAP = 64 << 20


class SavedObjects:
    """``save`` and ``load`` for a kind of objects.

    ``holder``: a class, of which the objects that are loaded are; ``cell(value)``: the cell of a
    variable, None of anything else; ``variable(tensor, trainable, name)`` makes one; ``cover`` a
    result; ``tensor(value, dtype)``: an argument as a plain tensor.
    """

    def __init__(
        self, holder: type, cell: Callable, variable: Callable, cover: Callable, tensor: Callable
    ) -> None:
        self.holder, self.cell, self.variable = holder, cell, variable
        self.cover, self.tensor = cover, tensor

    def save(
        self, obj: Any, export_dir: str | os.PathLike, signatures: Any = None, options: Any = None
    ) -> None:
        """Write ``obj`` into the folder: its variables, those of the objects in it, and each traced
        function among their attributes for the arguments that it was traced with (or has said).
        ``signatures``: functions by name, which ``load(...).signatures`` has; one alone is
        ``"serving_default"``."""
        _Writer(self, os.fspath(export_dir)).write(obj, signatures)

    def load(self, export_dir: str | os.PathLike, tags: Any = None, options: Any = None) -> Any:
        """The object of a folder, without the program that made it: its variables, which may be
        assigned to and trained, and its functions."""
        return _Reader(self, os.fspath(export_dir)).root()

    def there(self, export_dir: str | os.PathLike) -> bool:
        """Whether a folder is such a one."""
        return os.path.isfile(os.path.join(export_dir, TABLE))

    def names(self) -> dict[str, Callable]:
        """What a module of other names has."""
        return {"save": self.save, "load": self.load, "contains_saved_model": self.there}


# --- writing -------------------------------------------------------------------------------------


class _Writer:
    def __init__(self, kind: SavedObjects, folder: str) -> None:
        self.kind, self.folder = kind, folder
        self.objects: list[dict[str, Any]] = []
        self.numbers: dict[int, int] = {}  # of objects, by id
        self.cells: dict[int, tuple[int, Cell]] = {}
        self.about: list[dict[str, Any]] = []  # of cells
        self.programs: list[Program] = []
        self.places: dict[int, int] = {}  # of traces among the programs, by id
        self.kept: list[Any] = []  # keeps ids from being used again

    def write(self, obj: Any, signatures: Any) -> None:
        self.find(obj, set())
        root = self.object(obj)
        named = {k: {**self.trace(v), "names": _called(v)}
                 for k, v in _signatures(signatures).items()}  # fmt: skip
        os.makedirs(self.folder, exist_ok=True)
        for number, program in enumerate(self.programs):
            program.save(os.path.join(self.folder, f"{number}.dtp"))
        held = {str(n): cell.value.detach() for n, cell in self.cells.values()}
        save(held, os.path.join(self.folder, CELLS))
        told = {"version": VERSION, "root": root, "objects": self.objects, "cells": self.about,
                "signatures": named}  # fmt: skip
        raw = json.dumps(told, indent=1, allow_nan=False).encode()
        write_file(os.path.join(self.folder, TABLE), [raw], len(raw))

    def find(self, value: Any, seen: set[int]) -> None:
        """Number the cells, which any function may use: also by way of another one."""
        if id(value) in seen or not self.is_part(value):
            return
        seen.add(id(value))
        cell = self.kind.cell(value)
        if cell is not None:
            self.cell(cell, value)
        elif isinstance(value, (Function, Restored)):
            for variable in _variables(value):
                self.find(variable, seen)
        else:
            row = value if isinstance(value, (list, tuple)) else [v for _, v in _parts(value)]
            for part in row:
                self.find(part, seen)

    def object(self, value: Any) -> int:
        """The number of an object in the table."""
        if id(value) in self.numbers:
            return self.numbers[id(value)]
        number = self.numbers[id(value)] = len(self.objects)
        self.kept.append(value)
        self.objects.append({})
        self.objects[number] = self.described(value)
        return number

    def described(self, value: Any) -> dict[str, Any]:
        cell = self.kind.cell(value)
        if cell is not None:
            return {"kind": "cell", "cell": self.cell(cell, value)}
        if isinstance(value, Function):
            traces = [{**self.trace(t), "optional": _optional(value, t)} for t in _traces(value)]
            return {"kind": "function", "traces": traces}
        if isinstance(value, Restored):
            return {"kind": "function", "traces": [self.again(*pair) for pair in value.programs]}
        if isinstance(value, (list, tuple)):
            return {"kind": "list", "parts": [self.object(v) for v in value if self.is_part(v)]}
        parts = {name: self.object(v) for name, v in _parts(value) if self.is_part(v)}
        return {"kind": "dict" if isinstance(value, dict) else "object", "parts": parts}

    def is_part(self, value: Any) -> bool:
        row = isinstance(value, (list, tuple, dict))
        inside = value.values() if isinstance(value, dict) else value if row else ()
        kinds = (self.kind.holder, Function, Restored)
        known = isinstance(value, kinds) or self.kind.cell(value) is not None
        return known or any(self.is_part(v) for v in inside)

    def cell(self, cell: Cell, variable: Any) -> int:
        if id(cell) not in self.cells:
            if not isinstance(cell.value, Tensor):
                raise ConfigError(f"saved objects: {variable!r:.80} holds no numbers")
            self.cells[id(cell)] = len(self.about), cell
            name = str(getattr(variable, "name", "")).partition(":")[0]
            self.about.append({"trainable": bool(cell.trainable), "name": name})
        return self.cells[id(cell)][0]

    def again(
        self, program: Program, variables: list, optional: list[str] | None
    ) -> dict[str, Any]:
        """A program that was loaded."""
        number = self.places.setdefault(id(program), len(self.programs))
        if number == len(self.programs):
            self.programs.append(program)
        cells = [self.cell(self.kind.cell(v), v) for v in variables]
        told = {} if optional is None else {"optional": optional}
        return {"file": f"{number}.dtp", "cells": cells, **told}

    def trace(self, trace: Any) -> dict[str, Any]:
        """The program of a trace: made once."""
        if isinstance(trace, Restored) and len(trace.programs) == 1:
            return self.again(*trace.programs[0])
        trace = trace.trace_of() if isinstance(trace, Function) else trace
        if not isinstance(trace, Trace):
            raise ConfigError(f"saved objects: {trace!r:.80} is no traced function")
        if id(trace) not in self.places:
            self.places[id(trace)] = len(self.programs)
            self.kept.append(trace)
            self.programs.append(program_of(trace, [cell for _, cell in self.cells.values()]))
        number = self.places[id(trace)]
        return {"file": f"{number}.dtp", "cells": [n for n, _ in self.cells.values()]}


def program_of(trace: Trace, cells: list[Cell]) -> Program:
    """A trace as a program of (arguments by name, what the cells hold), which gives its result and
    what the cells hold then."""
    graph, specs = trace.graph, tree.leaves(trace.bound)
    if graph.captured:
        raise ConfigError(f"saved objects: {trace.name} uses values of the function around it")
    given = tree.map(lambda s: s.example(2) if _is_spec(s) else s, trace.bound)
    names = iter(range(len(specs) * 16))
    dynamic = tree.map(lambda s: _dims(s, names) if _is_spec(s) else None, trace.bound)

    def pure(arguments: Mapping[str, Any], state: list[Tensor]) -> tuple[Any, list[Tensor]]:
        before = [cell.value for cell in cells]
        try:
            for cell, tensor in zip(cells, state, strict=True):
                cell.value = tensor
            with enable_grad() if graph.taped else contextlib.nullcontext():
                found = graph.run([t for t in tree.leaves(arguments) if isinstance(t, Tensor)])
            return trace._rebuilt(list(found)), [cell.value for cell in cells]
        finally:
            for cell, tensor in zip(cells, before, strict=True):
                cell.value = tensor

    return export(pure, (given, [cell.value.detach() for cell in cells]), dynamic=(dynamic, None))


def _is_spec(value: Any) -> bool:
    return hasattr(value, "example") and hasattr(value, "shape")


def _dims(spec: Any, names: Iterator[int]) -> dict[int, str] | None:
    """Names of the sizes that are not known."""
    if spec.shape.rank is None:
        raise ConfigError(f"saved objects: {spec!r}: the number of dimensions must be known")
    return {d: f"size_{next(names)}" for d, n in enumerate(spec.shape.as_list()) if n is None}


def _traces(function: Function) -> list[Trace]:
    if not function.traces and function.input_signature is not None:
        return [function.trace_of()]
    return [t for t in function.traces if not t.graph.captured]


def _optional(function: Function, trace: Trace) -> list[str]:
    """The arguments that may be left out, as the trace has what the function takes then."""
    known = function._signature.parameters
    plain = (bool, int, float, str, type(None))
    return [n for n, v in trace.bound.items() if n in known and isinstance(v, plain)
            and type(v) is type(known[n].default) and v == known[n].default]  # fmt: skip


def _called(function: Any) -> dict[str, str]:
    """The arguments that a signature calls otherwise: as their specifications do."""
    trace = function.trace_of() if isinstance(function, Function) else function
    bound = trace.bound if isinstance(trace, Trace) else {}
    names = {n: str(v.name) for n, v in bound.items() if _is_spec(v) and getattr(v, "name", None)}
    return {told: n for n, told in names.items() if told != n}


def _variables(function: Function | Restored) -> list[Any]:
    """The variables that a function uses."""
    if isinstance(function, Restored):
        return [v for _, variables, _ in function.programs for v in variables]
    return [v for t in _traces(function) for v in t.graph.variables]


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """The attributes of an object, or what a dict has; then the methods of it that are traced."""
    known = value if isinstance(value, dict) else vars(value)
    yield from ((str(name), part) for name, part in known.items() if part is not None)
    for name in dir(type(value)):
        if isinstance(getattr(type(value), name, None), Function):
            yield name, getattr(value, name)


def _signatures(given: Any) -> dict[str, Any]:
    if given is None:
        return {}
    return dict(given) if isinstance(given, Mapping) else {"serving_default": given}


# --- reading -------------------------------------------------------------------------------------


class Restored:
    """A function that was loaded: a program for each kind of arguments that it was traced with."""

    def __init__(
        self, kind: SavedObjects, programs: list[tuple[Program, list, list[str] | None]]
    ) -> None:
        # With the variables that each takes, and the arguments that may be left out (None: any).
        self.kind, self.programs = kind, programs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The result of the first program that takes such arguments; where a function is traced,
        an operation of it."""
        graph = CURRENT.get()
        if graph is None:
            found = self.run(args, kwargs)
            return tree.map(lambda v: self.kind.cover(v) if isinstance(v, Tensor) else v, found)
        for variable in _variables(self):
            graph.uses(variable)
        leaves, rebuild = tree.flatten((args, kwargs), with_none=True)
        at = [i for i, v in enumerate(leaves) if isinstance(v, Symbol)]

        def call(*values: Any) -> Any:
            known = list(leaves)
            for i, value in zip(at, values, strict=True):
                known[i] = self.kind.cover(value)
            trial = CURRENT.get() is not None or TRIAL.get()
            with outside():
                given, words = rebuild(known)
                return self.run(given, words, trial)

        return graph.record("Call", call, [leaves[i] for i in at])

    def run(self, args: tuple, kwargs: dict, trial: bool = False) -> Any:
        """The result, of plain tensors; a ``trial`` leaves the variables as they are."""
        refused = []
        for program, variables, optional in self.programs:
            cells = [self.kind.cell(v) for v in variables]
            try:
                arguments = self._arguments(program, args, kwargs, optional)
                found, after = program(arguments, [cell.read() for cell in cells])
            except (ShapeError, ConfigError, TypeError) as error:
                refused.append(str(error).splitlines()[0][:200])
                continue
            for cell, value in zip(cells, () if trial else after, strict=not trial):
                if not _same(cell.value, value):
                    cell.value = value.detach()
            return found
        said = "\n  ".join(refused)
        raise ValueError(f"Could not find matching concrete function to call loaded from the "
                         f"SavedModel. Each was refused:\n  {said}")  # fmt: skip

    def _arguments(
        self, program: Program, args: tuple, kwargs: dict, optional: list[str] | None
    ) -> dict[str, Any]:
        spec = next(iter(program.signature.arguments.values()))
        names, parts = spec["keys"], spec["parts"]
        if len(args) > len(names) or kwargs.keys() - {*names[len(args) :]}:
            raise TypeError(f"the arguments {', '.join(map(str, names))} are needed")
        given = dict(zip(names, args, strict=False)) | kwargs
        left = [
            n
            for n, p in zip(names, parts, strict=True)
            if p["kind"] == "plain" and n not in given and n not in (optional or ())
        ]
        if left and optional is not None:
            raise TypeError(f"missing argument {left[0]!r}, which it was not traced without")
        rows = iter(program.inputs)
        return {n: self._argument(p, given, n, rows) for n, p in zip(names, parts, strict=True)}

    def _argument(self, spec: dict, given: Any, key: Any, rows: Iterator[Any]) -> Any:
        """One argument, as its program takes it."""
        if spec["kind"] == "plain":
            return given.get(key, spec["value"]) if isinstance(given, dict) else given[key]
        if isinstance(given, dict) and key not in given:
            raise TypeError(f"missing required argument {key!r}")
        value = given[key]
        if spec["kind"] == "tensor":
            return self.kind.tensor(value, next(rows).dtype)
        keys = spec.get("keys", range(len(spec["parts"])))
        found = {k: self._argument(p, value, k, rows)
                 for k, p in zip(keys, spec["parts"], strict=True)}  # fmt: skip
        return found if spec["kind"] in ("dict", "odict") else list(found.values())


def _same(a: Any, b: Any) -> bool:
    return a is b or (tuple(a.shape) == tuple(b.shape) and a.data_ptr() == b.data_ptr())


class _Signature:
    """A function by the name of its results."""

    def __init__(self, function: Restored, names: Mapping[str, str]) -> None:
        self.function, self.names = function, dict(names)

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        kwargs = {self.names.get(name, name): value for name, value in kwargs.items()}
        found = self.function(*args, **kwargs)
        if isinstance(found, dict):
            return found
        row = found if isinstance(found, (list, tuple)) else [found]
        return {f"output_{k}": value for k, value in enumerate(row)}


class _Reader:
    def __init__(self, kind: SavedObjects, folder: str) -> None:
        self.kind, self.folder = kind, folder
        path = os.path.join(folder, TABLE)
        if not os.path.isfile(path) or os.stat(path).st_size > _CAP:
            raise ConfigError(f"saved objects: {folder} has no {TABLE}")
        with open(path, "rb") as file:
            self.told = load_json(file.read(), path)
        self.path = path
        self.programs: dict[str, Program] = {}
        self.made: dict[int, Any] = {}
        try:
            if self.told["version"] != VERSION:
                raise SerializationError(f"{path}: version {self.told['version']!r:.40}")
            held = load(os.path.join(folder, CELLS))
            self.variables = [
                kind.variable(held[str(n)], bool(about["trainable"]), str(about["name"]) or None)
                for n, about in enumerate(self.told["cells"])
            ]
        except (KeyError, TypeError, AttributeError) as error:
            raise self.damaged(error) from None

    def damaged(self, error: Exception) -> SerializationError:
        return SerializationError(f"{self.path}: {type(error).__name__}: {error}. It is damaged")

    def root(self) -> Any:
        """The object that was saved, with its ``signatures``."""
        try:
            found = self.object(self.told["root"], 0)
            found.signatures = {
                name: _Signature(self.function([trace]), trace.get("names", {}))
                for name, trace in self.told["signatures"].items()
            }
        except DisttrainError:
            raise
        except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
            raise self.damaged(error) from None
        return found

    def object(self, number: int, depth: int) -> Any:
        if number in self.made:
            return self.made[number]
        if type(number) is not int or number < 0 or depth > 100:
            raise ValueError(f"the object {number!r:.40}")
        about = self.told["objects"][number]
        if about["kind"] == "cell":
            return self.variables[about["cell"]]
        if about["kind"] == "function":
            return self.made.setdefault(number, self.function(about["traces"]))
        if about["kind"] == "list":
            row: list[Any] = []
            self.made[number] = row
            row += [self.object(part, depth + 1) for part in about["parts"]]
            return row
        out = self.made[number] = {} if about["kind"] == "dict" else _loaded(self.kind.holder)()
        known: dict[str, Any] = out if isinstance(out, dict) else vars(out)
        for name, part in about["parts"].items():
            known[str(name)] = self.object(part, depth + 1)
        return out

    def function(self, traces: list[dict[str, Any]]) -> Restored:
        pairs = []
        for trace in traces:
            file = trace["file"]
            if type(file) is not str or not _FILE.match(file):
                raise ValueError(f"the file {file!r:.40}")
            if file not in self.programs:
                self.programs[file] = load_program(os.path.join(self.folder, file))
            variables, optional = [self.variables[n] for n in trace["cells"]], trace.get("optional")
            if optional is not None and type(optional) is not list:
                raise ValueError(f"the arguments {optional!r:.40}")
            pairs.append((self.programs[file], variables, optional))
        return Restored(self.kind, pairs)


def _loaded(holder: type) -> type:
    """A class of what is loaded: called, it calls the function ``__call__`` that it has."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if "__call__" not in vars(self):
            raise TypeError("what was saved has no function __call__")
        return vars(self)["__call__"](*args, **kwargs)

    return type("Loaded", (holder,), {"__call__": call})


__all__ = ["Restored", "SavedObjects", "program_of"]
