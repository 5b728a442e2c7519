"""Where the boxes of a graph stand: in layers, each below its sources, near to them (Sugiyama and
others 1981). Pure: a graph in, places out."""

from __future__ import annotations

from dataclasses import dataclass

from .graph import ENDS, OUTPUT, Graph

CHARACTER, LINE = 6.6, 15.0  # of a monospaced font of 11 points
_GAP, _BETWEEN, _MARGIN = 18.0, 30.0, 14.0
_SWEEPS = 4


@dataclass(frozen=True)
class Box:
    """A rectangle around the lines of a node; ``x`` and ``y`` are its upper left corner."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


def layers(graph: Graph) -> list[list[int]]:
    """The numbers of nodes by their distance from what has no sources; what is only read stands
    one above its first reader."""
    nodes = graph.nodes
    depth = [0] * len(nodes)
    for i, node in enumerate(nodes):
        depth[i] = 1 + max((depth[s] for s in node.sources), default=-1)
    first = [len(nodes)] * len(nodes)
    for i, node in enumerate(nodes):
        for s in node.sources:
            first[s] = min(first[s], depth[i])
    found: list[list[int]] = []
    for i, node in enumerate(nodes):
        at = depth[i]
        if not node.sources and node.kind in ENDS and node.kind != OUTPUT and first[i] > 0:
            at = min(first[i], len(nodes)) - 1 if first[i] < len(nodes) else at
        while len(found) <= at:
            found.append([])
        found[at].append(i)
    return found


def arranged(graph: Graph) -> tuple[list[Box], float, float]:
    """A box for each node, and the width and height of the whole."""
    rows = layers(graph)
    for _ in range(_SWEEPS):
        _reorder(graph, rows)
    sizes = [_size(node.lines()) for node in graph.nodes]
    widths = [sum(sizes[i][0] for i in row) + _GAP * (len(row) - 1) for row in rows]
    whole = max(widths, default=0.0) + 2 * _MARGIN
    boxes = [Box(0.0, 0.0, 0.0, 0.0)] * len(graph.nodes)
    y = _MARGIN
    for row, width in zip(rows, widths, strict=True):
        x = (whole - width) / 2
        tallest = max((sizes[i][1] for i in row), default=0.0)
        for i in row:
            boxes[i] = Box(x, y, *sizes[i])
            x += sizes[i][0] + _GAP
        y += tallest + _BETWEEN
    return boxes, whole, y - _BETWEEN + _MARGIN


def _size(lines: list[str]) -> tuple[float, float]:
    longest = max((len(line) for line in lines), default=1)
    return longest * CHARACTER + 14, len(lines) * LINE + 8


def _reorder(graph: Graph, rows: list[list[int]]) -> None:
    """Bring every node near the middle of those that it is joined to."""
    place = {i: k / max(len(row) - 1, 1) for row in rows for k, i in enumerate(row)}
    readers: dict[int, list[int]] = {}
    for i, node in enumerate(graph.nodes):
        for s in node.sources:
            readers.setdefault(s, []).append(i)

    def wanted(i: int) -> float:
        near = [*graph.nodes[i].sources, *readers.get(i, ())]
        return sum(place[n] for n in near) / len(near) if near else place[i]

    for row in rows:
        row.sort(key=wanted)
        place.update((i, k / max(len(row) - 1, 1)) for k, i in enumerate(row))
