"""A model as a Module: initializers are parameters and buffers by name, a call runs the graph."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from keyword import iskeyword
from typing import Any

import numpy as np
from onnx import TensorProto

from ...core import no_grad
from ...core.tensor import Tensor
from ...core.types import dtypes
from ...core.types.dtypes import dtype
from ...errors import ConfigError, DTypeError, ShapeError
from ...nn.module import Module
from ...nn.parameter import Parameter
from ...ops import api
from .elements import NUMBERS, held_in, type_name
from .graph import Graph, Port, buffers_of, numbers_of
from .numbers import Numbers, of_array
from .running import Frame, constant, run


class OnnxModule(Module):
    """A model that was read. Call it with tensors in the order of ``inputs``, or by their names.

    ``inputs``, ``outputs``: what the model says of them. ``qualified_names``: for each initializer
    the name that ``state_dict`` has it under, which is its own, except where no module can have it.
    """

    def __init__(self, graph: Graph, source: str = "model") -> None:
        super().__init__()
        self._graph, self._source = graph, source
        self.inputs = tuple(p for p in graph.inputs if p.name not in graph.constants)
        self.outputs = tuple(graph.outputs)
        self._optional = tuple(p for p in graph.inputs if p.name in graph.constants)
        self.qualified_names: dict[str, str] = {}
        self._homes: dict[str, tuple[Module, str]] = {}
        self._witnesses: dict[dtype, tuple[Module, str]] = {}  # a tensor of each type of numbers
        self._numbers: dict[str, Numbers] = {}
        self._texts: dict[str, np.ndarray] = {}
        self._take_constants(graph)
        if all(p.name.isidentifier() and not iskeyword(p.name) for p in self.inputs):
            self.__dict__["forward"] = Forward(self)

    # --- state ------------------------------------------------------------------------------
    def _take_constants(self, graph: Graph) -> None:
        as_numbers, as_tensors = numbers_of(graph)
        fixed = buffers_of(graph)
        for part in graph.walk():
            for name, array in part.constants.items():
                if name in as_numbers and array.dtype != object:
                    self._numbers[name] = of_array(array, dtypes.of(array.dtype))
                if array.dtype == object:
                    self._texts[name] = array
                elif name in as_tensors or name not in as_numbers:
                    self._hold(name, array, name in part.literals, name in fixed)
            part.constants = dict.fromkeys(part.constants, _GONE)

    def _hold(self, name: str, array: np.ndarray, literal: bool, fixed: bool) -> None:
        tensor = constant(array)
        home, own = self._home(name)
        trained = tensor.dtype.is_floating_point and tensor.dtype.itemsize > 1
        if trained and not literal and not fixed:
            home.register_parameter(own, Parameter(tensor))
        else:
            home.register_buffer(own, tensor, persistent=not literal)
        self._homes[name] = home, own
        if tensor.dtype.is_floating_point:
            self._witnesses.setdefault(tensor.dtype, (home, own))

    def _home(self, name: str) -> tuple[Module, str]:
        """The module within this one, and the name in it, for an initializer."""
        home: Module = self
        *path, own = name.split(".")
        walked: list[str] = []
        for part in path:
            inner = home._modules.get(part)
            if inner is None:
                if not part or hasattr(home, part):
                    home, walked, own = self, [], name.replace(".", "_")
                    break
                inner = Module()
                home.add_module(part, inner)
            home = inner
            walked.append(part)
        own = own or "_"
        while hasattr(home, own):
            own += "_"
        self.qualified_names[name] = ".".join([*walked, own])
        return home, own

    # --- calls ------------------------------------------------------------------------------
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The results of the model: one, or a tuple of them."""
        self._note_types()
        given = self._bound(args, kwargs)
        values: dict[str, Any] = {n: getattr(home, own) for n, (home, own) in self._homes.items()}
        values |= self._texts
        values |= given
        numbers = {n: v for n, v in self._numbers.items() if n not in given}
        device = next((v.device for v in given.values() if isinstance(v, Tensor)), None)
        if device is None:
            device = next((v.device for v in values.values() if isinstance(v, Tensor)), None)
        if device is None:
            out = run(self._graph, Frame(values, numbers, device))
        else:
            with device:  # where what operators make of sizes alone has to be
                out = run(self._graph, Frame(values, numbers, device))
        return out[0] if len(out) == 1 else tuple(out)

    def _note_types(self) -> None:
        """What became of the model's types of numbers, as one tensor of each says."""
        types = self._graph.types
        for kind, (home, own) in self._witnesses.items():
            now = getattr(home, own).dtype
            if types.get(kind, kind) != now:
                types[kind] = now

    def _bound(self, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Values by the names of inputs, checked."""
        if len(args) > len(self.inputs):
            raise ConfigError(
                f"{self._source}: {len(args)} values were given; it takes {self._said()}"
            )
        given = dict(zip([p.name for p in self.inputs], args))
        ports = {p.name: p for p in (*self.inputs, *self._optional)}
        for name, value in kwargs.items():
            if name in given:
                raise ConfigError(f"{self._source}: input {name!r} was given twice")
            if name not in ports:
                raise ConfigError(f"{self._source}: no input {name!r}; it takes {self._said()}")
            given[name] = value
        missing = [p.name for p in self.inputs if p.name not in given]
        if missing:
            raise ConfigError(
                f"{self._source}: input {missing[0]!r} was not given; it takes {self._said()}"
            )
        sizes: dict[str, Any] = {}
        for name, value in given.items():
            if isinstance(value, np.ndarray | np.generic) and value.dtype.kind not in "OUS":
                given[name] = value = api.tensor(np.asarray(value))
            if isinstance(value, Tensor):
                _check(ports[name], value, sizes, self._source, self._graph.types)
            else:
                _check_other(ports[name], value, self._source)
        return given

    def _said(self) -> str:
        return ", ".join(map(str, self.inputs)) or "no inputs"

    def run(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Arrays by name for arrays by name, without gradients."""
        if not isinstance(arrays, Mapping):
            raise ConfigError(
                f"{self._source}: {type(arrays).__name__} was given; needed are arrays by "
                f"the names of inputs, as run({{name: array}}); it takes {self._said()}"
            )
        with no_grad():
            out = self(**dict(arrays))
        found = (out,) if len(self.outputs) == 1 else out
        return {p.name: _array(value) for p, value in zip(self.outputs, found)}

    def extra_repr(self) -> str:
        """What it takes and gives."""
        return f"{self._said()} -> {', '.join(map(str, self.outputs))}"


class Forward:
    """The call of a model, with the names of its inputs for those who ask for a signature."""

    def __init__(self, model: OnnxModule) -> None:
        self.model = model
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = [inspect.Parameter(p.name, kind) for p in model.inputs]
        self.__signature__ = inspect.Signature(parameters)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return type(self.model).forward(self.model, *args, **kwargs)


_GONE = np.empty(0)


def _array(value: Any) -> Any:
    if isinstance(value, list):
        return [_array(v) for v in value]
    if isinstance(value, np.ndarray | dict):
        return value
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else value


def _check(
    port: Port, value: Tensor, sizes: dict[str, Any], source: str, types: dict[dtype, dtype]
) -> None:
    """Whether a tensor is what the model says of its input."""
    if port.kind == TensorProto.STRING:
        raise DTypeError(
            f"{source}: input {port.name!r} is {value.dtype}; needed is an array of texts"
        )
    if port.kind is not None:
        kind = held_in(port.kind)
        needed = types.get(kind, kind)
        if value.dtype != needed:
            said = "" if needed == kind else f" (as the module was made {needed})"
            raise DTypeError(
                f"{source}: input {port.name!r} is {value.dtype}; needed is "
                f"{type_name(NUMBERS[needed] if said else port.kind)}{said}"
            )
    if port.shape is None:
        return
    fits = len(value.shape) == len(port.shape)
    for have, need in zip(value.shape, port.shape) if fits else ():
        if isinstance(need, str):
            need = sizes.setdefault(need, have)
        fits = fits and (need is None or bool(have == need))
    if not fits:
        raise ShapeError(
            f"{source}: input {port.name!r} has shape {tuple(value.shape)}; needed is {port}"
            + "".join(f", {n}={v}" for n, v in sizes.items() if n in port.shape)
        )


def _check_other(port: Port, value: Any, source: str) -> None:
    """Whether what is no tensor may be: where texts are needed, or no tensor."""
    if port.kind is None or (port.kind == TensorProto.STRING and isinstance(value, np.ndarray)):
        return
    more = "; give values by name as model(**values)" if isinstance(value, Mapping) else ""
    raise DTypeError(
        f"{source}: input {port.name!r} is of type {type(value).__name__}; needed is a tensor or "
        f"an array of {type_name(port.kind)}{more}"
    )
