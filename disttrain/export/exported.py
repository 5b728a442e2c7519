"""``ExportedProgram`` and what it says of itself, with the names of ``torch.export``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ..core.tensor import Tensor
from ..errors import CaptureError, ConfigError
from ..nn import Module, Parameter
from .dims import Dim
from .exporting import export as export_program
from .files import load_program
from .modules import ProgramModule
from .program import Program
from .reading import FxGraph, GraphModule, lifted_name


class InputKind(Enum):
    """What an input of the graph is."""

    USER_INPUT = 1
    PARAMETER = 2
    BUFFER = 3
    CONSTANT_TENSOR = 4


class OutputKind(Enum):
    """What an output of the graph is."""

    USER_OUTPUT = 1
    BUFFER_MUTATION = 3
    USER_INPUT_MUTATION = 6


@dataclass(frozen=True)
class InputSpec:
    """One input of the graph: its ``kind``, its name (``arg``), and the name of the tensor."""

    kind: InputKind
    arg: str
    target: str | None = None


@dataclass(frozen=True)
class OutputSpec:
    """One output of the graph."""

    kind: OutputKind
    arg: str
    target: str | None = None


@dataclass(frozen=True)
class GraphSignature:
    """What goes into the graph and comes out of it, where parameters are inputs, too."""

    program: Program

    @property
    def input_specs(self) -> list[InputSpec]:
        """All inputs, in order."""
        program = self.program
        kinds = dict.fromkeys(program.parameters, InputKind.PARAMETER)
        kinds |= dict.fromkeys(program.buffers, InputKind.BUFFER)
        specs = [
            InputSpec(kinds.get(n, InputKind.CONSTANT_TENSOR), lifted_name(program, n), n)
            for n, _ in program.tensors()
        ]
        return specs + [InputSpec(InputKind.USER_INPUT, v.name) for v in program.inputs]

    @property
    def output_specs(self) -> list[OutputSpec]:
        """All outputs, in order."""
        program = self.program
        specs = [
            OutputSpec(OutputKind.BUFFER_MUTATION if old in program.state
                       else OutputKind.USER_INPUT_MUTATION, new, old)
            for old, new in program.writes
        ]  # fmt: skip
        return specs + [OutputSpec(OutputKind.USER_OUTPUT, n) for n in program.results]

    @property
    def user_inputs(self) -> tuple[str, ...]:
        """The names of what is given."""
        return tuple(v.name for v in self.program.inputs)

    @property
    def user_outputs(self) -> tuple[str, ...]:
        """The names of what is returned."""
        return tuple(self.program.results)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of parameters."""
        return self.program.parameters

    @property
    def buffers(self) -> tuple[str, ...]:
        """The names of buffers."""
        return self.program.buffers

    @property
    def inputs_to_parameters(self) -> dict[str, str]:
        """Parameters by the graph's inputs."""
        return {lifted_name(self.program, n): n for n in self.program.parameters}

    @property
    def inputs_to_buffers(self) -> dict[str, str]:
        """Buffers by the graph's inputs."""
        return {lifted_name(self.program, n): n for n in self.program.buffers}

    @property
    def buffers_to_mutate(self) -> dict[str, str]:
        """Buffers that are written to, by the names of their new values."""
        return {new: old for old, new in self.program.writes if old in self.program.state}

    @property
    def user_inputs_to_mutate(self) -> dict[str, str]:
        """Inputs that are written to, by the names of their new values."""
        return {new: old for old, new in self.program.writes if old not in self.program.state}


class ExportedProgram:
    """A ``Program`` with the names of ``torch.export``. ``program`` is the program itself."""

    def __init__(self, program: Program, example_inputs: Any = None) -> None:
        self.program, self.example_inputs = program, example_inputs

    def module(self, check_guards: bool = True) -> Module:
        """The program as a module, which runs it."""
        return GraphModule(self.program)

    @property
    def graph_module(self) -> GraphModule:
        """The program as a module whose graph has parameters as inputs."""
        return GraphModule(self.program, lifted=True)

    @property
    def graph(self) -> FxGraph:
        """The graph, in which parameters are inputs."""
        return self.graph_module.graph

    @property
    def graph_signature(self) -> GraphSignature:
        """What goes into the graph and comes out of it."""
        return GraphSignature(self.program)

    @property
    def state_dict(self) -> dict[str, Tensor]:
        """Parameters and buffers by name."""
        return dict(self.program.state)

    @property
    def constants(self) -> dict[str, Tensor]:
        """Other tensors by name."""
        return dict(self.program.constants)

    tensor_constants = constants

    @property
    def range_constraints(self) -> dict[str, Dim]:
        """The ranges of dimensions that may change."""
        return dict(self.program.dims)

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Parameters with their names."""
        for n in self.program.parameters:
            yield n, self.program.state[n]  # type: ignore[misc]

    def parameters(self) -> Iterator[Parameter]:
        """Parameters."""
        return (t for _, t in self.named_parameters())

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """Buffers with their names."""
        for n in self.program.buffers:
            yield n, self.program.state[n]

    def buffers(self) -> Iterator[Tensor]:
        """Buffers."""
        return (t for _, t in self.named_buffers())

    def run_decompositions(self, *tables: object, **how: object) -> ExportedProgram:
        """Itself: a program consists of primitives."""
        return self

    def validate(self) -> None:
        """A program is checked when it is made, or read from a file."""

    def __call__(self, *args: object, **kwargs: object) -> Any:
        raise RuntimeError(
            "Unable to call ExportedProgram directly. You should use `exported_program.module()` "
            "instead."
        )

    def __str__(self) -> str:
        return f"ExportedProgram:\n{self.program}"

    __repr__ = __str__


def export(
    mod: Module, args: tuple = (), kwargs: Mapping[str, Any] | None = None, *,
    dynamic_shapes: Any = None, strict: bool = False, preserve_module_call_signature: Any = (),
    prefer_deferred_runtime_asserts_over_guards: bool = False,
) -> ExportedProgram:  # fmt: skip
    """``mod``, in the mode that it is in, as an ``ExportedProgram``. ``dynamic_shapes``: by
    argument, ``{dimension: Dim(...)}``, one entry for each dimension, or None."""
    if not isinstance(mod, Module):
        raise ValueError(f"Expected `mod` to be an instance of `torch.nn.Module`, got {type(mod)}.")
    if not isinstance(args, tuple):
        raise ConfigError(f"export: args={type(args).__name__} given; a tuple of arguments is "
                          "needed")  # fmt: skip
    dynamic_shapes = (
        getattr(dynamic_shapes, "dynamic_shapes", lambda *a: dynamic_shapes)(mod, args, kwargs)
        if hasattr(dynamic_shapes, "dynamic_shapes")
        else dynamic_shapes
    )
    program = export_program(mod, args, kwargs, dynamic=dynamic_shapes, train=None)
    return ExportedProgram(program, (args, dict(kwargs or {})))


def save(
    ep: ExportedProgram, f: Any, *, extra_files: Mapping[str, Any] | None = None,
    opset_version: Mapping[str, int] | None = None, pickle_protocol: int = 2,
) -> None:  # fmt: skip
    """Write ``ep`` to the path or file ``f``. ``extra_files``: texts by name, kept beside it."""
    if not isinstance(ep, ExportedProgram):
        raise TypeError(f"The 'ep' parameter must be an instance of 'ExportedProgram', got "
                        f"'{type(ep).__name__}' instead.")  # fmt: skip
    save_with(ep.program, f, extra_files)


def save_with(
    program: Program, f: Any, extra_files: Mapping[str, Any] | None,
    about: Mapping[str, str] | None = None,
) -> None:  # fmt: skip
    """Save a program with texts. ``about``: more of its metadata."""
    before = dict(program.metadata)
    for name, text in (extra_files or {}).items():
        text = text.decode() if isinstance(text, bytes) else text
        if not isinstance(text, str):
            raise ConfigError(f"save: extra file {name!r} is a {type(text).__name__}; a text is "
                              "needed")  # fmt: skip
        program.metadata[f"file:{name}"] = text
    program.metadata.update(about or {})
    try:
        program.save(f)
    finally:
        program.metadata.clear()
        program.metadata.update(before)


def load(
    f: Any, *, extra_files: dict[str, Any] | None = None,
    expected_opset_version: Mapping[str, int] | None = None,
) -> ExportedProgram:  # fmt: skip
    """What ``save`` wrote. ``extra_files``: a dict, whose names are given their texts."""
    program = load_program(f)
    take_texts(program, extra_files)
    return ExportedProgram(program)


def take_texts(program: Program, extra_files: dict[str, Any] | None) -> None:
    """Fill a dict of texts."""
    for name in extra_files or {}:
        found = program.metadata.get(f"file:{name}")
        if extra_files is not None and found is not None:
            extra_files[name] = found


def dims(*names: str, min: int | None = None, max: int | None = None) -> tuple[Dim, ...]:  # noqa: A002
    """Several ``Dim``s."""
    return tuple(Dim(name, min=min, max=max) for name in names)


class ShapesCollection:
    """Dynamic shapes by tensor: ``shapes[x] = {0: dim}``."""

    def __init__(self) -> None:
        self._shapes: dict[int, tuple[Any, Any]] = {}

    def __setitem__(self, t: Any, shape: Any) -> None:
        self._shapes[id(t)] = t, shape

    def __getitem__(self, t: Any) -> Any:
        return self._shapes[id(t)][1]

    def __len__(self) -> int:
        return len(self._shapes)

    def dynamic_shapes(self, m: Any, args: tuple, kwargs: Mapping[str, Any] | None = None) -> Any:
        """By argument."""

        def of(x: Any) -> Any:
            if isinstance(x, Tensor):
                return self._shapes.get(id(x), (None, None))[1]
            if isinstance(x, dict):
                return {k: of(v) for k, v in x.items()}
            return type(x)(map(of, x)) if type(x) in (list, tuple) else None

        return tuple(map(of, (*args, *(kwargs or {}).values())))


def unflatten(module: ExportedProgram, flat_args_adapter: Callable | None = None) -> Module:
    """The program as a module with the submodules' parameters under their names."""
    return ProgramModule(module.program)


def symbolic_trace(
    root: Any, concrete_args: Any = None, *, example_inputs: Any = None
) -> GraphModule:
    """``root`` as a graph module. ``example_inputs``: its arguments (a tuple), without which shapes
    and types, of which programs consist here, are not known."""
    if example_inputs is None:
        raise CaptureError(
            "symbolic_trace: example inputs are needed, since shapes and types are part of a "
            "program: symbolic_trace(m, example_inputs=(x,)), or torch.export.export(m, (x,))"
        )
    given = example_inputs if isinstance(example_inputs, (tuple, list)) else (example_inputs,)
    return GraphModule(export_program(root, tuple(given), dict(concrete_args or {}), dynamic=True,
                                      train=None))  # fmt: skip


__all__ = ["Dim", "ExportedProgram", "FxGraph", "GraphModule", "GraphSignature", "InputKind",
           "InputSpec", "OutputKind", "OutputSpec", "ShapesCollection", "dims", "export", "load",
           "save", "save_with", "symbolic_trace", "take_texts", "unflatten"]  # fmt: skip
