"""A model as data: steps in order, each a row of the table with its attributes and names of values.

Nothing here computes. Every value has a name of its own, also those of functions that were put in
place of their nodes and of graphs that are attributes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...core.types.dtypes import dtype
from .numbers import RULES
from .table import Call, Operator


@dataclass(frozen=True)
class Limits:
    """What a model may ask for. ``bytes`` of one tensor of the file; ``elements`` of a tensor that
    an operation makes of sizes alone; ``nodes``, functions opened; ``depth`` of graphs and
    functions within each other; ``iterations`` of all loops of a call."""

    bytes: int = 1 << 36
    elements: int = 1 << 28
    nodes: int = 1_000_000
    depth: int = 32
    iterations: int = 10_000_000


@dataclass(frozen=True)
class Port:
    """An input or result of a model. ``kind``: the number of its element type, None for what is no
    tensor; ``shape``: ints and names of sizes that change, None where it is not said."""

    name: str
    kind: int | None = None
    shape: tuple[int | str | None, ...] | None = None

    def __str__(self) -> str:
        sizes = (
            "?"
            if self.shape is None
            else ", ".join("?" if n is None else str(n) for n in self.shape)
        )
        return f"{self.name}[{sizes}]"


_GROWING = frozenset(
    "Add Sub Mul Div Pow Mod PRelu MatMul Gemm Equal Less Greater LessOrEqual GreaterOrEqual And "
    "Or Xor Where Min Max Sum Mean BitwiseAnd BitwiseOr BitwiseXor".split()
)


@dataclass
class Step:
    """One operation. ``where`` names its node in errors."""

    where: str
    kind: str
    row: Operator
    attributes: dict[str, Any]
    graphs: dict[str, Graph]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    call: Call
    on_numbers: bool = False
    frees: tuple[str, ...] = ()
    words: dict[str, Any] = field(init=False)  # what the function is given by name
    plain: bool = field(init=False, default=False)  # takes tensors, has one result
    grows: bool = field(init=False, default=False)  # which may be larger than all of these

    def __post_init__(self) -> None:
        self.words = self.attributes | ({"node": self.call} if self.row.takes_node else {})
        takes_tensors = not (self.graphs or self.row.numbers or self.row.soft)
        self.grows = self.kind in _GROWING and len(self.inputs) > 1
        self.plain = takes_tensors and len(self.outputs) == 1 and bool(self.outputs[0])

    @property
    def has_rule(self) -> bool:
        """Whether numbers of the host go through it as such."""
        return self.kind in RULES or self.kind in _SIZES


@dataclass
class Graph:
    """Steps between inputs and results. ``constants``: arrays by name, of the file; ``literals``:
    those of them that no state has, as a node is their source."""

    name: str
    inputs: list[Port] = field(default_factory=list)
    outputs: list[Port] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    literals: set[str] = field(default_factory=set)
    types: dict[dtype, dtype] = field(default_factory=dict)  # of ``Call``; of a model as a whole

    def walk(self) -> Iterator[Graph]:
        """This graph and all inside."""
        yield self
        for step in self.steps:
            for inner in step.graphs.values():
                yield from inner.walk()

    def made(self) -> set[str]:
        """Names that have a value here, and not outside."""
        names = {p.name for p in self.inputs} | set(self.constants)
        return names.union(*[s.outputs for s in self.steps])

    def taken(self) -> set[str]:
        """Names of values from outside."""
        used = {n for s in self.steps for n in s.inputs} | {p.name for p in self.outputs}
        for step in self.steps:
            for inner in step.graphs.values():
                used |= inner.taken()
        return used - self.made()


def finish(graph: Graph) -> None:
    """Say which steps compute on numbers of the host, and when values are no longer needed."""
    sized: set[str] = set()
    derived: set[str] = set()
    _find_sized(graph, sized, derived, set())
    needed: set[str] = set()
    while True:
        before = len(needed)
        _find_needed(graph, sized, needed)
        if len(needed) == before:
            break
    for inner in graph.walk():
        for step in inner.steps:
            wanted = not needed.isdisjoint(step.outputs)
            step.on_numbers = _computes(step, sized) and (wanted or step.outputs[0] in derived)
            step.plain = step.plain and not step.on_numbers
            if step.kind in ("Gemm", "MatMul"):
                step.grows = step.grows and not _is_layer(inner.constants.get(step.inputs[1]))
        _free(inner)


def _is_layer(weights: np.ndarray | None) -> bool:
    """Whether a product with these weights makes no more of its input than a layer does."""
    return weights is not None and weights.ndim == 2 and min(weights.shape) >= _LEAST


def numbers_of(graph: Graph) -> tuple[set[str], set[str]]:
    """Of the constants: those that are used as numbers of the host, and those used as tensors."""
    as_numbers: set[str] = set()
    as_tensors: set[str] = set()
    for inner in graph.walk():
        as_tensors |= {p.name for p in inner.outputs}
        for step in inner.steps:
            for place, name in enumerate(step.inputs):
                wanted = step.on_numbers or place in step.row.numbers or place in step.row.soft
                (as_numbers if wanted else as_tensors).add(name)
            as_numbers |= {p.name for p in _asked(step)}
    return as_numbers, as_tensors


def buffers_of(graph: Graph) -> set[str]:
    """Constants that training leaves alone, as all that use them say."""
    yes: set[str] = set()
    no: set[str] = set()
    for inner in graph.walk():
        for step in inner.steps:
            for place, name in enumerate(step.inputs):
                (yes if place in step.row.buffers else no).add(name)
    return yes - no


_SIZES = ("Shape", "Size")
_MAKERS = ("ConstantOfShape", "Expand", "Range", "Tile")  # of more numbers than they are given
_LEAST = 8  # rows and columns of weights whose products are not held to the limit of elements
_MOST = 256  # elements of a constant that may take part in arithmetic on sizes


def _find_sized(graph: Graph, sized: set[str], derived: set[str], many: set[str]) -> None:
    """Names of values that can be numbers of the host; and those that come from sizes, and are as
    few, so that nothing is gained by making tensors of them: not ``many``, as a range's are."""
    for name, array in graph.constants.items():
        if array.size <= _MOST and array.dtype.kind in (
            "iufb" if name in graph.literals else "iub"
        ):
            sized.add(name)
    for step in graph.steps:
        sized |= {p.name for p in _counted(step)}
        for inner in step.graphs.values():
            _find_sized(inner, sized, derived, many)
        if _computes(step, sized):
            sized.update(step.outputs)
            from_sizes = step.kind in _SIZES or not derived.isdisjoint(step.inputs)
            if step.kind in _MAKERS or not many.isdisjoint(step.inputs):
                many.update(step.outputs)
            elif from_sizes:
                derived.update(step.outputs)


def _counted(step: Step) -> list[Port]:
    """Of the body of a loop: the number of the round, and whether it goes on, which are numbers."""
    return step.graphs["body"].inputs[:2] if step.kind == "Loop" else []


def _asked(step: Step) -> list[Port]:
    """Of the body of a loop: the result that says whether it goes on."""
    return step.graphs["body"].outputs[:1] if step.kind == "Loop" else []


def _computes(step: Step, sized: set[str]) -> bool:
    if not step.has_rule or len(step.outputs) != 1:
        return False
    return step.kind in _SIZES or all(n in sized for n in step.inputs if n)


def _find_needed(graph: Graph, sized: set[str], needed: set[str]) -> None:
    """Names of values that something uses as numbers of the host."""
    for step in reversed(graph.steps):
        needed |= {p.name for p in _asked(step)}
        for inner in step.graphs.values():
            _find_needed(inner, sized, needed)
        asked = step.row.numbers | step.row.soft
        needed |= {n for i, n in enumerate(step.inputs) if n and i in asked}
        passes = step.kind not in _SIZES and _computes(step, sized)
        if passes and not needed.isdisjoint(step.outputs):
            needed |= {n for n in step.inputs if n}


def _free(graph: Graph) -> None:
    """With each step the values that nothing uses after it, of those made here."""
    kept = {p.name for p in graph.outputs} | set(graph.constants)
    seen = set(kept)
    for step in reversed(graph.steps):
        used = {n for n in step.inputs if n}.union(*[g.taken() for g in step.graphs.values()])
        step.frees = tuple(sorted((used | set(step.outputs)) - seen - {""}))
        seen |= used
    here = graph.made()
    for step in graph.steps:
        step.frees = tuple(n for n in step.frees if n in here)
