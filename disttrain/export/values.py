"""What a saved program consists of: names, values, nodes, and graphs of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from .sizes import Size, evaluated


class Name(str):
    """The name of a value, among the arguments of a node."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"%{self}"


class Value(NamedTuple):
    """A value: its name, its shape (ints, and ``Size`` where dimensions may change), and its type
    of elements (NumPy's)."""

    name: str
    shape: tuple[Any, ...]
    dtype: np.dtype

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"

    def sized(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape for these sizes of dimensions."""
        found: tuple[int, ...] = evaluated(tuple(self.shape), sizes)
        return found


@dataclass(frozen=True)
class Node:
    """``outputs = primitive(*args, **params)``. ``args``: ``Name`` of values, and plain ones;
    ``module``: the path of the module that does it, "" outside of modules; ``line``: of the
    program."""

    primitive: str
    args: tuple[Any, ...]
    params: Mapping[str, Any]
    outputs: tuple[str, ...]
    module: str = ""
    line: str = ""

    @property
    def inputs(self) -> tuple[Name, ...]:
        """The values that it takes, in order."""
        return tuple(a for a in self.args if isinstance(a, Name))

    def __str__(self) -> str:
        given = [repr(a) for a in self.args]
        given += [f"{k}={_told(v)}" for k, v in self.params.items()]
        return f"{', '.join('%' + o for o in self.outputs)} = {self.primitive}({', '.join(given)})"


@dataclass(frozen=True)
class Graph:
    """Nodes in order: a program, or the body of a loop or a branch in one. ``inputs``: names of
    what is given; ``outputs``: names of what it gives; ``values``: all values, by name."""

    inputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Any, ...]
    values: dict[str, Value] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"graph({', '.join(str(self.values[n]) for n in self.inputs)}):"]
        for node in self.nodes:
            shown = ", ".join(str(self.values[o]) for o in node.outputs)
            about = "  # " + " ".join(x for x in (node.module, node.line) if x)
            lines.append(f"  {node!s}  : {shown}{about if len(about) > 4 else ''}")
        return "\n".join([*lines, f"  return {', '.join(map(repr, self.outputs))}"])

    def graphs(self) -> Iterator[Graph]:
        """The graphs inside of its nodes' parameters."""
        for node in self.nodes:
            for param in node.params.values():
                for part in param if isinstance(param, tuple) else (param,):
                    if isinstance(part, Graph):
                        yield part


def _told(value: Any) -> str:
    if isinstance(value, Graph):
        return f"<graph of {len(value.nodes)} nodes>"
    if isinstance(value, tuple) and any(isinstance(v, Graph) for v in value):
        return f"({', '.join(map(_told, value))})"
    return str(value) if isinstance(value, (Size, np.dtype)) else repr(value)


__all__ = ["Graph", "Name", "Node", "Value"]
