"""``torch.jit``: functions and modules that run as they are written, and can be saved as programs.

What ``script`` and ``trace`` give computes as before. It knows the shapes and types of example
inputs (those of ``trace``, those given to ``script``, or those of its first call); ``save``,
``graph`` and ``code`` are of the program that ``disttrain.export`` makes with them, for all sizes
that it allows. ``load`` gives a module that runs such a program.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ... import tree
from ...core import Tensor, wrap
from ...errors import CaptureError
from ...futures import Future
from ...nn import Module
from ...trace import warn
from ..publish import Shim

_READ = ("graph", "inlined_graph", "code", "save", "program", "original_name", "graph_for")


class TracerWarning(Warning):
    """That a trace cannot be saved, since no program says all that it does."""


class _Examples:
    """Arguments that a program is made with: shapes and types of tensors, other values as they
    are."""

    def __init__(self, args: Any, kwargs: dict) -> None:
        self.shape = tree.map(_outline, (tuple(args), dict(kwargs)), with_none=True)

    def made(self) -> tuple[tuple, dict]:
        """Arguments of this kind."""
        rng = np.random.default_rng(0)
        found: tuple[tuple, dict] = tree.map(
            lambda x: x.tensor(rng) if isinstance(x, _Outline) else x, self.shape, with_none=True
        )
        return found


class _Outline:
    """A tensor's shape and type."""

    def __init__(self, t: Tensor) -> None:
        (self.size, self.kind), self.grad = t.meta(), t.requires_grad

    def tensor(self, rng: np.random.Generator) -> Tensor:
        """A tensor of it."""
        numbers = np.zeros(self.size) if self.kind.kind in "iu" else rng.uniform(0.5, 1, self.size)
        return wrap(np.asarray(numbers).astype(self.kind)).requires_grad_(self.grad)


def _outline(x: object) -> Any:
    return _Outline(x) if isinstance(x, Tensor) else x


class _Made:
    """The program of a function or a module ``of``, once its arguments are known."""

    def __init__(self, of: Any, name: str) -> None:
        self.of, self.name = of, name
        self.examples: _Examples | None = None
        self.known: Any = None
        self.refused: str | None = None

    def see(self, args: tuple, kwargs: dict) -> None:
        """The first call."""
        try:
            self.examples = _Examples(args, kwargs)
        except Exception:  # (arguments of kinds that no program has)
            self.refused = "its arguments are of kinds that no program has"

    def program(self) -> Any:
        """The program, in the mode that modules are in now."""
        args, kwargs = self.arguments()
        export = importlib.import_module("disttrain.export.exporting")
        return export.export(self.of, args, kwargs, dynamic=True, train=None)

    def arguments(self) -> tuple[tuple, dict]:
        """Arguments of the kind that it is called with."""
        if self.examples is None:
            why = self.refused or "the shapes and types of its arguments are not known"
            raise CaptureError(
                f"{self.name}: {why}; call it once, or use torch.jit.trace, or "
                "script(..., example_inputs=[(x,)])"
            )
        return self.examples.made()

    def read(self, name: str) -> Any:
        """``graph``, ``code``, ``save`` and the like."""
        if name == "save":
            return self.save
        if name == "original_name":
            return self.name
        if name == "program":
            return self.program()
        reading = importlib.import_module("disttrain.export.reading")
        found = reading.graph_of(self.program())
        if name == "code":
            return found.python_code()
        return (lambda *args, **kwargs: found) if name == "graph_for" else found

    def save(self, f: Any, _extra_files: Any = None) -> None:
        """Write the program to a path or a file; of a module, those of both modes."""
        if isinstance(self.of, Module):
            modes = importlib.import_module("disttrain.export.modes")
            modes.save(modes.programs(self.of, *self.arguments()), self.of.training, f,
                       _extra_files)  # fmt: skip
            return
        importlib.import_module("disttrain.export.exported").save_with(
            self.program(), f, _extra_files
        )


class ScriptFunction:
    """A function that can be saved as a program. It runs as it is written."""

    def __init__(self, fn: Callable) -> None:
        functools.update_wrapper(self, fn)
        self._made = _Made(fn, getattr(fn, "__name__", type(fn).__name__))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        made = self._made
        if made.examples is None and made.refused is None:
            made.see(args, kwargs)
        return made.of(*args, **kwargs)

    def __get__(self, instance: object, owner: object = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __getattr__(self, name: str) -> Any:
        made = self.__dict__.get("_made")
        if made is not None and name in _READ:
            return made.read(name)
        if made is None or name.startswith("__"):
            raise AttributeError(name)
        return getattr(made.of, name)

    def __reduce__(self) -> Any:
        """By its name, as a function; where that leads to the function under it, by that one's."""
        path = getattr(self._made.of, "__qualname__", "")
        found: Any = sys.modules.get(self.__module__)
        for part in path.split("."):
            found = getattr(found, part, None)
        return path if found is self else (script, (self._made.of,))

    @property
    def name(self) -> str:
        """The function's name."""
        return self._made.name


class ScriptModule(Module):
    """A module that ``script``, ``trace`` or ``load`` gave; a program may derive from it."""


class _Scripted(ScriptModule):
    """What scripted modules of all classes have in common: the attributes of the module that they
    are of, and what is read of its program."""

    _made: Any

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        made = type(self)._made
        if made.examples is None and made.refused is None:
            made.see(args, kwargs)
        return super().__call__(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name in _READ:  # (where the module has nothing of that name)
                return type(self)._made.read(name)
            raise

    def __reduce_ex__(self, protocol: object) -> tuple:
        return _again, (type(self)._made.of,)


def _again(module: Module) -> Any:
    return script(module)


def _scripted(module: Module) -> Any:
    """``module`` under a second name, with a class that differs by what is read of a program."""
    kind: Any = type(module)
    own = {name: getattr(kind, name) for name in ("__doc__", "__module__", "__qualname__")}
    made = type(kind)(kind.__name__, (_Scripted, kind), {**own, "_made": None})
    made._made = _Made(module, kind.__name__)
    found = object.__new__(made)
    object.__setattr__(found, "__dict__", module.__dict__)
    return found


# --- script and trace -----------------------------------------------------------------------------
_NEVER = {
    inspect.CO_GENERATOR: "it yields", inspect.CO_COROUTINE: "it is a coroutine",
    inspect.CO_ASYNC_GENERATOR: "it yields, and is a coroutine",
}  # fmt: skip


def _check_code(fn: Any, name: str) -> None:
    """Raise ``CaptureError`` for a function that is no program, whatever it is given."""
    code = getattr(getattr(fn, "__func__", fn), "__code__", None)
    if code is None:
        return
    why = next((told for flag, told in _NEVER.items() if code.co_flags & flag), None)
    if why is not None:
        raise CaptureError(
            f"torch.jit.script: {name} ({code.co_filename}:{code.co_firstlineno}) cannot be a "
            f"program: {why}; a program gives its results once, when it ends"
        )


def script(
    obj: Any, optimize: object = None, _frames_up: int = 0, _rcb: object = None,
    example_inputs: Any = None,
) -> Any:  # fmt: skip
    """``obj``, which computes as before and can be saved: a function becomes a ``ScriptFunction``,
    a module a ``ScriptModule`` with the module's own parameters and attributes; a class stays.

    ``example_inputs``: a list of tuples of arguments (of a module: a dict, by module), with the
    first of which the program is made at once. Raises ``CaptureError`` where that cannot be, and
    for what can be no program with any arguments.
    """
    if isinstance(obj, (ScriptFunction, ScriptModule, type)):
        return obj
    if isinstance(obj, Module):
        _check_code(type(obj).forward, type(obj).__name__)
        found = _scripted(obj)
        made = type(found)._made
        if isinstance(example_inputs, dict):
            example_inputs = example_inputs.get(obj)
    elif isinstance(obj, (types.FunctionType, types.MethodType)):
        _check_code(obj, obj.__name__)
        found = ScriptFunction(obj)
        made = found._made
    else:
        return obj
    if example_inputs:
        first = example_inputs[0]
        made.see(tuple(first) if isinstance(first, (tuple, list)) else (first,), {})
        made.program()
    return found


def trace(
    func: Any, example_inputs: Any = None, optimize: object = None, check_trace: bool = True,
    check_inputs: object = None, check_tolerance: float = 1e-5, strict: bool = True,
    _force_outplace: bool = False, _module_class: object = None, _compilation_unit: object = None,
    example_kwarg_inputs: dict | None = None, _store_inputs: bool = True,
) -> Any:  # fmt: skip
    """``func``, which computes as before, also with inputs of other sizes, and can be saved as the
    program that it is for ``example_inputs`` (a tuple, or one tensor). Where no program can be made
    a ``TracerWarning`` says why."""
    if isinstance(func, Module):
        found = _scripted(func)
        made = type(found)._made
    elif callable(func) and not isinstance(func, type):
        found = ScriptFunction(func._made.of if isinstance(func, ScriptFunction) else func)
        made = found._made
    else:
        return func
    if example_inputs is None and example_kwarg_inputs is None:
        return found
    given = () if example_inputs is None else example_inputs
    made.see(tuple(given) if isinstance(given, (tuple, list)) else (given,),
             example_kwarg_inputs or {})  # fmt: skip
    try:
        made.program()
    except CaptureError as why:
        warn(f"torch.jit.trace: {made.name} runs as it is written, and cannot be saved: {why}",
             TracerWarning)  # fmt: skip
    return found


def trace_module(mod: Module, inputs: dict[str, Any], *args: object, **kwargs: object) -> Any:
    """``trace`` of a module, by its method; ``forward`` is the one that can be saved."""
    return trace(mod, inputs.get("forward"))


def save(m: Any, f: Any, _extra_files: Any = None) -> None:
    """Write the program of what ``script`` or ``trace`` gave to the path or file ``f``.
    ``_extra_files``: texts by name."""
    made = getattr(type(m) if isinstance(m, Module) else m, "_made", None)
    if made is not None:
        made.save(f, _extra_files)
        return
    program = getattr(m, "program", None)
    if not isinstance(m, ScriptModule) or program is None:
        raise CaptureError(
            f"torch.jit.save: {type(m).__name__} given; what torch.jit.script or torch.jit.trace "
            "gives is needed"
        )
    known = m.__dict__["_programs"]
    modes = importlib.import_module("disttrain.export.modes")
    modes.save(known, m.training if m.training in known else not m.training, f, _extra_files)


def load(
    f: Any, map_location: Any = None, _extra_files: dict | None = None,
    _restore_shapes: bool = False,
) -> Any:  # fmt: skip
    """The program in the path or file ``f`` as a module. It needs none of the code that it was made
    of. ``_extra_files``: a dict, whose names are given their texts."""
    programs, mode = importlib.import_module("disttrain.export.modes").load(f)
    importlib.import_module("disttrain.export.exported").take_texts(programs[mode], _extra_files)
    found = _loaded_class()(programs[mode])
    found.__dict__["_programs"] = programs
    for program in programs.values():
        found.hold(program)
    found.train(mode)
    return found if map_location is None else found.to(map_location)


@functools.lru_cache(1)
def _loaded_class() -> Any:
    reading = importlib.import_module("disttrain.export.reading")
    kind = type("RecursiveScriptModule", (ScriptModule, reading.GraphModule), {})
    kind.__module__ = __name__
    kind.forward = _forward  # type: ignore[attr-defined]
    kind.program, kind.graph = property(_program_of), property(_graph_of)  # type: ignore[attr-defined]
    kind.save = _save_loaded  # type: ignore[attr-defined]
    kind.inlined_graph = property(lambda self: self.graph)  # type: ignore[attr-defined]
    kind.original_name = property(lambda self: type(self).__name__)  # type: ignore[attr-defined]
    return kind


def _program_of(self: Any) -> Any:
    """The program of the mode that the module is in; of a file without it, the one that is there.
    (Whoever sets ``training`` has not always called ``train``.)"""
    first = self.__dict__["_program"]
    return self.__dict__.get("_programs", {}).get(self.training, first)


def _graph_of(self: Any) -> Any:
    kept, program = self.__dict__.get("_graph", (None, None)), self.program
    if kept[0] is not program:
        reading = importlib.import_module("disttrain.export.reading")
        kept = self.__dict__["_graph"] = (program, reading.graph_of(program))
    return kept[1]


def _forward(self: Any, *args: Any, **kwargs: Any) -> Any:
    """The result of the program of the mode that the module is in."""
    known = self.__dict__["_programs"]
    if self.training not in known:
        told = {True: "training", False: "evaluation"}
        raise CaptureError(
            f"torch.jit.load: the file has what the module computes in {told[not self.training]} "
            f"alone; put the script into the other mode, .train({self.training}), and save it again"
        )
    self._take_state()
    return self.program(*args, **kwargs)


def _save_loaded(self: Any, f: Any, _extra_files: Any = None) -> None:
    """Write the program to a path or a file."""
    save(self, f, _extra_files)


def _as_it_is(obj: object = None, *args: object, **kwargs: object) -> Any:
    return obj


def _mark(fn: object = None, drop: bool = False, **kwargs: object) -> Any:
    """A decorator that changes nothing, with or without arguments of its own."""
    return fn if callable(fn) else lambda f: f


def interface(cls: type) -> type:
    """Mark a class that says which methods a module has."""
    cls.__torch_script_interface__ = True  # type: ignore[attr-defined]
    return cls


def fork(func: Callable, *args: object, **kwargs: object) -> Future:
    """A future of what ``func`` returns; it has run when this returns."""
    out: Future = Future()
    try:
        out.set_result(func(*args, **kwargs))
    except Exception as error:
        out.set_exception(error)
    return out


def jit() -> Shim:
    """``torch.jit``."""
    return Shim("torch.jit").give(
        script=script,
        trace=trace,
        trace_module=trace_module,
        save=save,
        load=load,
        script_method=_as_it_is,
        script_if_tracing=_mark,
        freeze=_as_it_is,
        optimize_for_inference=_as_it_is,
        export=_mark,
        ignore=_mark,
        unused=_mark,
        _overload=_as_it_is,
        _overload_method=_as_it_is,
        interface=interface,
        is_scripting=lambda: False,
        is_tracing=lambda: False,
        annotate=lambda the_type, the_value: the_value,
        isinstance=builtins.isinstance,
        fork=fork,
        wait=lambda future: future.wait(),
        Final=Final,
        ScriptFunction=ScriptFunction,
        TracerWarning=TracerWarning,
        ScriptModule=ScriptModule,
        RecursiveScriptModule=ScriptModule,
    )
