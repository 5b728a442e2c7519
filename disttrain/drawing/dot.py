"""A graph in graphviz's language, with a box around what belongs to one module."""

from __future__ import annotations

from typing import Any

from ..compile.drawing import quoted
from .graph import ENDS, Graph
from .svg import FILLS


def description(graph: Graph) -> str:
    """The text of the file."""
    lines = ["digraph drawn {", '  node [fontname="monospace", fontsize=10, shape=box];']
    lines += _inside(graph, _scopes(graph), "", "  ")
    for i, node in enumerate(graph.nodes):
        lines += [f"  n{s} -> n{i};" for s in node.sources]
    return "\n".join([*lines, "}"])


def _scopes(graph: Graph) -> dict[str, Any]:
    """Scopes within scopes; under "" the numbers of the nodes that belong to one alone."""
    root: dict[str, Any] = {}
    for i, node in enumerate(graph.nodes):
        at = root
        for part in node.scope.split("/") if node.scope else ():
            at = at.setdefault(part, {})
        at.setdefault("", []).append(i)
    return root


def _inside(graph: Graph, scope: dict[str, Any], path: str, indent: str) -> list[str]:
    lines = []
    for i in scope.get("", ()):
        node = graph.nodes[i]
        fill = f', style=filled, fillcolor="{FILLS[node.kind]}"' if node.kind in ENDS else ""
        label = quoted("\n".join(node.lines()))
        lines.append(f"{indent}n{i} [label={label}{fill}];")
    for name, inner in scope.items():
        if name:
            full = f"{path}/{name}"
            lines += [f"{indent}subgraph {quoted('cluster' + full)} {{",
                      f"{indent}  label={quoted(name)};"]  # fmt: skip
            lines += [*_inside(graph, inner, full, indent + "  "), f"{indent}}}"]
    return lines
