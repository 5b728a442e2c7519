"""A graph run with values: tensors, numbers of the host, lists of tensors, texts.

A step computes on numbers of the host where the graph says so (sizes that become sizes again), else
by the function of its row. Inner graphs see the values around them.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from ...core.tensor import Tensor
from ...core.types import dtypes
from ...errors import DeviceError, DTypeError, LinAlgError, NodeError, NumberError, ShapeError
from ...ops import api
from .elements import held
from .graph import Graph, Step
from .numbers import RULES, Numbers, of_array, of_sizes
from .table import Operator

# What is told with the node that it happened in; all else goes through, as it steers transforms.
_FAULTS = (ShapeError, DTypeError, NumberError, DeviceError, LinAlgError, TypeError, LookupError,
           AttributeError, ArithmeticError, MemoryError, AssertionError)  # fmt: skip


class Frame:
    """Values by name, over those of the graph around; ``rounds``: how often inner ones were run."""

    __slots__ = ("device", "numbers", "outer", "rounds", "values")

    def __init__(
        self, values: dict, numbers: dict, device: Any, outer: Frame | None = None
    ) -> None:
        self.values, self.numbers, self.device, self.outer = values, numbers, device, outer
        self.rounds: list[int] = [0] if outer is None else outer.rounds

    def value(self, name: str) -> Any:
        """A value as functions take it: a tensor, where there are numbers, too."""
        frame: Frame | None = self
        while frame is not None:
            if name in frame.values:
                return frame.values[name]
            if name in frame.numbers:
                return to_tensor(frame.numbers[name], self.device)
            frame = frame.outer
        raise AssertionError(name)

    def either(self, name: str) -> Any:
        """A value as numbers of the host where it is known as such, else as a tensor."""
        frame: Frame | None = self
        while frame is not None:
            if name in frame.numbers:
                return frame.numbers[name]
            frame = frame.outer
        return self.value(name)

    def as_numbers(self, name: str) -> Numbers:
        """A value as numbers of the host; a tensor is read."""
        frame: Frame | None = self
        while frame is not None:
            if name in frame.numbers:
                return frame.numbers[name]
            if name in frame.values:
                return read(frame.values[name])
            frame = frame.outer
        raise AssertionError(name)


def to_tensor(numbers: Numbers, device: Any = None) -> Tensor:
    """Numbers of the host as a tensor; those that are sizes stay so."""
    kind = numbers.kind
    if numbers.shape == () or len(numbers.items) == 1:
        return api.full(numbers.shape, numbers.items[0], dtype=kind, device=device)
    if all(type(x) in (int, float, bool) for x in numbers.items):
        array = np.array(numbers.items, kind.np).reshape(numbers.shape)
        return api.tensor(array, dtype=kind, device=device)
    single = [api.full((1,), x, dtype=kind, device=device) for x in numbers.items]
    return api.cat(single).reshape(numbers.shape)


def read(value: Any) -> Numbers:
    """A tensor's numbers, taken to the host."""
    if isinstance(value, Numbers):
        return value
    if not isinstance(value, Tensor):
        raise DTypeError(f"numbers are needed; given is {type(value).__name__}")
    return of_array(value.detach().cpu().numpy(), value.dtype)


def run(graph: Graph, frame: Frame, numbered: int = 0) -> list[Any]:
    """The results of ``graph``, whose inputs ``frame`` has, after the first ``numbered``."""
    values, numbers = frame.values, frame.numbers
    for step in graph.steps:
        try:
            if step.plain:
                _run_plain(step, frame, values)
            else:
                _run(step, frame)
        except Exception as error:
            if type(error) is ValueError or isinstance(error, _FAULTS):
                raise NodeError(f"{step.where}: {error or type(error).__name__}") from error
            raise
        for name in step.frees:
            if values.pop(name, None) is None:
                numbers.pop(name, None)
    return [frame.value(port.name) for port in graph.outputs[numbered:]]


def _run_plain(step: Step, frame: Frame, values: dict[str, Any]) -> None:
    """A step of tensors alone with one result: what nearly all are, with the least around it."""
    try:
        given = [values[name] for name in step.inputs]
    except KeyError:  # left out, of a graph around, or numbers
        given = [frame.value(name) if name else None for name in step.inputs]
    if step.grows:
        _check_growth(step, given)
    out = step.row.function(*given, **step.words)
    values[step.outputs[0]] = out[0] if type(out) is tuple else out


def _check_growth(step: Step, given: list[Any]) -> None:
    """Before any memory is taken: whether small tensors make a huge one by their shapes."""
    most, bound = step.call.limits.elements, 1
    for x in given[:2] if step.kind == "Gemm" else given:
        if isinstance(x, Tensor):
            bound = bound * math.prod(x.shape)
    if type(bound) is not int or bound <= most:
        return
    shapes = [tuple(x.shape) for x in given if isinstance(x, Tensor)]
    if shapes.count(shapes[0]) == len(shapes):
        return
    count = _count(step, shapes)
    if count > max(most, *map(math.prod, shapes)):
        raise ShapeError(
            f"{count} elements would be made of tensors of {shapes}; at most {most} are "
            "(load(..., limits=Limits(elements=...)))"
        )


def _count(step: Step, shapes: list[tuple]) -> int:
    """Elements of what tensors of ``shapes`` make."""
    rest = 1
    if step.kind == "Gemm" and min(map(len, shapes[:2])) > 0:
        inner = shapes[0][0 if step.attributes.get("transA") else -1]
        columns = shapes[1][0 if step.attributes.get("transB") else -1]
        return math.prod(shapes[0]) // max(inner, 1) * columns
    if step.kind == "MatMul" and min(map(len, shapes)) > 1:
        rest = shapes[0][-2] * shapes[1][-1]
        shapes = [s[:-2] for s in shapes]
    longest = itertools.zip_longest(*map(reversed, shapes), fillvalue=1)
    return rest * math.prod(0 if 0 in sizes else max(sizes) for sizes in longest)


def inner(graph: Graph, frame: Frame, most: int, numbered: int = 0) -> Any:
    """A function of values that runs a graph within ``frame``, if ``most`` runs are not over. Its
    first ``numbered`` results are numbers of the host, if they are known as such."""

    def call(*given: Any) -> list[Any]:
        frame.rounds[0] += 1
        if frame.rounds[0] > most:
            raise ShapeError(
                f"loops of more than {most} rounds together (load(..., "
                "limits=Limits(iterations=...)))"
            )
        if len(given) != len(graph.inputs):
            raise ShapeError(
                f"graph {graph.name!r} takes {len(graph.inputs)} values; given are {len(given)}"
            )
        values, numbers = dict[str, Any](), dict[str, Numbers]()
        for port, value in zip(graph.inputs, given):
            (numbers if isinstance(value, Numbers) else values)[port.name] = value
        own = Frame(values, numbers, frame.device, frame)
        rest = run(graph, own, numbered)
        return [own.either(port.name) for port in graph.outputs[:numbered]] + rest

    return call


def _run(step: Step, frame: Frame) -> None:
    if step.on_numbers:
        frame.numbers[step.outputs[0]] = _on_numbers(step, frame)
        return
    row = step.row
    given = [
        None if not name else _given(frame, name, i, row) for i, name in enumerate(step.inputs)
    ]
    words = dict(step.words)
    for name, graph in step.graphs.items():
        words[name] = inner(graph, frame, step.call.limits.iterations, step.kind == "Loop")
    out = row.function(*given, **words)
    if len(step.outputs) == 1 and not isinstance(out, tuple):
        out = (out,)
    if len(out) < len(step.outputs):
        raise ShapeError(f"{len(step.outputs)} results are wanted; it has {len(out)}")
    for name, value in zip(step.outputs, out):
        if name:
            frame.values[name] = value


def _given(frame: Frame, name: str, place: int, row: Operator) -> Any:
    if place in row.numbers:
        return frame.as_numbers(name)
    return frame.either(name) if place in row.soft else frame.value(name)


def _on_numbers(step: Step, frame: Frame) -> Numbers:
    if step.kind in ("Shape", "Size"):
        value = frame.value(step.inputs[0])
        sizes = list(value.shape)
        if step.kind == "Shape":
            return of_sizes(sizes[_cut(step.attributes)])
        total: Any = 1
        for n in sizes:
            total = total * n
        return Numbers([total], (), dtypes.int64)
    given = [frame.as_numbers(n) if n else None for n in step.inputs]
    return RULES[step.kind](*given, **step.attributes)


def _cut(attributes: dict[str, Any]) -> slice:
    return slice(attributes.get("start", 0), attributes.get("end"))


def constant(array: np.ndarray) -> Any:
    """A constant of the file as a value: a tensor, or an array of texts."""
    return array if array.dtype == object else api.tensor(held(array))
