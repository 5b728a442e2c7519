"""The table of operators: by domain and name, functions with the versions that they are for.

A function takes the inputs of a node in their order (None for one left out) and its attributes by
name. What became an input in a later version is one parameter for both, so most functions serve all
versions. One that has a parameter ``node`` is told what else the node says (``Call``).
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...core.types.dtypes import dtype

ML, TRAINING, PREVIEW = "ai.onnx.ml", "ai.onnx.preview.training", "ai.onnx.preview"
MICROSOFT = "com.microsoft"
NEWEST = 10**6


@dataclass(frozen=True)
class Call:
    """What a function may ask of its node: how many results are wanted, the version of its domain,
    the limits of the model, for each input ONNX's type if it has fewer than 8 bits, else 0; and
    what types became by ``double``, ``half`` and the like, which all nodes of a model share."""

    num_outputs: int
    version: int
    limits: Any
    narrow: tuple[int, ...]
    types: dict[dtype, dtype] = field(default_factory=dict)

    def narrow_type(self, place: int) -> int:
        """ONNX's type of fewer than 8 bits that an input has, or 0."""
        return self.narrow[place] if place < len(self.narrow) else 0

    def type_of(self, kind: dtype) -> dtype:
        """What the model's type ``kind`` is now."""
        return self.types.get(kind, kind)


@dataclass(frozen=True)
class Operator:
    """One row: a function for versions ``since`` to ``until``. ``numbers``: inputs that are given
    as numbers of the host (sizes, axes, counts); ``soft``: the same, if they are numbers;
    ``buffers``: those that training leaves alone."""

    function: Callable[..., Any]
    since: int = 1
    until: int = NEWEST
    numbers: frozenset[int] = frozenset()
    soft: frozenset[int] = frozenset()
    buffers: frozenset[int] = frozenset()
    takes_node: bool = False
    parameters: frozenset[str] = field(default=frozenset(), repr=False)
    takes_all: bool = False  # attributes by any name
    place: tuple[str, str, int] = ("", "", 0)  # in the table

    def __reduce__(self) -> tuple:
        return row_at, self.place

    def accepts(self, attribute: str) -> bool:
        """Whether the function knows this attribute."""
        return self.takes_all or attribute in self.parameters


_TABLE: dict[tuple[str, str], list[Operator]] = defaultdict(list)


def operator(
    *names: str, since: int = 1, until: int = NEWEST, domain: str = "",
    numbers: tuple[int, ...] = (), soft: tuple[int, ...] = (), buffers: tuple[int, ...] = (),
) -> Callable[[Callable], Callable]:  # fmt: skip
    """A decorator: the function computes the operators ``names``."""

    def add(function: Callable) -> Callable:
        kinds = inspect.signature(function).parameters
        row = Operator(
            function, since, until, frozenset(numbers), frozenset(soft), frozenset(buffers),
            "node" in kinds, frozenset(kinds) - {"node"},
            any(p.kind is p.VAR_KEYWORD for p in kinds.values()),
            (domain, names[0], len(_TABLE[domain, names[0]])),
        )  # fmt: skip
        for name in names:
            _TABLE[domain, name].append(row)
        return function

    return add


def simple(domain: str = "", **functions: Callable[..., Any]) -> None:
    """Rows for functions that take tensors alone: for all versions."""
    for name, function in functions.items():
        operator(name, domain=domain)(function)


def find(domain: str, name: str, version: int) -> Operator | None:
    """The row for an operator of a model that imports ``version`` of ``domain``."""
    rows = _TABLE.get((domain, name), ())
    fits = [r for r in rows if r.since <= version <= r.until]
    return min(fits, key=lambda r: r.until - r.since, default=None)


def row_at(domain: str, name: str, place: int) -> Operator:
    """A row by its place: how it travels to other processes."""
    return _TABLE[domain, name][place]


def names(domain: str = "") -> list[str]:
    """The operators of a domain that have rows."""
    return sorted(name for where, name in _TABLE if where == domain)
