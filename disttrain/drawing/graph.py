"""A graph to be shown, as data: nodes in an order in which each comes after its sources."""

from __future__ import annotations

from dataclasses import dataclass, field

INPUT, PARAMETER, BUFFER, CONSTANT, OUTPUT, GRADIENT = (
    "input", "parameter", "buffer", "constant", "output", "gradient",
)  # fmt: skip
ENDS = frozenset((INPUT, PARAMETER, BUFFER, CONSTANT, OUTPUT, GRADIENT))


@dataclass(frozen=True)
class Node:
    """``name`` is unique, with the modules around it, "Net/fc1/linear"; ``kind`` the operation, or
    one of ``ENDS``; ``sources``: numbers of the nodes whose values it takes."""

    name: str
    kind: str
    sources: tuple[int, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    dtype: str = ""
    details: str = ""

    @property
    def scope(self) -> str:
        """The modules around it."""
        return self.name.rpartition("/")[0]

    def lines(self) -> list[str]:
        """What its box says."""
        shapes = " ".join(f"{self.dtype}{list(s)}" for s in self.shapes)
        first = self.name.rpartition("/")[2] if self.kind in ENDS else self.kind
        return [line for line in (first, shapes) if line]


@dataclass
class Graph:
    """Nodes, and a title."""

    title: str = ""
    nodes: list[Node] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict, repr=False)

    def add(self, name: str, kind: str, **parts: object) -> int:
        """A new node's number; a name that is taken gets a number of its own."""
        count = self.names.get(name, 0)
        self.names[name] = count + 1
        if count:
            return self.add(f"{name}_{count}", kind, **parts)
        self.nodes.append(Node(name, kind, **parts))  # type: ignore[arg-type]
        return len(self.nodes) - 1

    def text(self) -> str:
        """A line for each node."""
        lines = []
        for node in self.nodes:
            given = ", ".join(self.nodes[i].name for i in node.sources)
            shapes = " ".join(f"{node.dtype}{list(s)}" for s in node.shapes)
            lines.append(f"{node.name}: {node.kind}({given}) {shapes}".rstrip())
        return "\n".join(lines)
