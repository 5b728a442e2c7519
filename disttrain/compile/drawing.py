"""Graphs for people: as text before and after each pass, and as a drawing (graphviz's language).

``dot -Tsvg`` makes a picture of the drawing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .graph import Graph
from .instruction import Instruction, Var, describe
from .passes import ORDER, THERE, Pass, liveness, scheduling, stages

_COLOURS = {"writes": "#f4cccc", "random": "#fff2cc", "checks": "#fce5cd", "fused": "#d9ead3"}


class Captured(NamedTuple):
    """What ``capture(fn)(*args)`` gives: the function's result, and the graph of what it did."""

    result: Any
    graph: Graph

    def show(self, format: str = "text", *, passes: bool = False) -> str:  # noqa: A002
        """The graph as "text" or as "dot"; with ``passes``, the text after each of them, too."""
        if format not in ("text", "dot"):
            raise ValueError(f"show: format={format!r} given; 'text' or 'dot' is needed")
        if format == "dot":
            return dot(self.graph)
        return text(self.graph, (THERE if self.graph.there else ORDER) if passes else ())


def text(graph: Graph, passes: Sequence[Pass] = ()) -> str:
    """The graph, and what each of ``passes`` that changes it makes of it."""
    parts = [f"captured, {_count(graph)}:\n{graph}"]
    for name, after in stages(graph, passes):
        same = after.instructions == graph.instructions
        shown = f"after {name}: as before" if same else f"after {name}, {_count(after)}:\n{after}"
        parts.append(shown)
        graph = after
    return "\n\n".join(parts)


def _count(graph: Graph) -> str:
    return f"{len(graph.instructions)} instructions"


def told(graph: Graph, captured: Graph) -> list[str]:
    """What became of a ``captured`` program, in words: its memory, and its work with others."""
    peaks = f"{liveness.told(graph)} of what it makes; as captured, {liveness.told(captured)}"
    return [f"at its peak it holds {peaks}", *scheduling.told(graph)]


def effects(ins: Instruction) -> list[str]:
    """What an instruction does besides giving its results."""
    prim = ins.prim
    found = {
        "writes": prim.mutates, "random": prim.random, "checks": prim.checks,
        "outward": prim.outward,
    }  # fmt: skip
    return [name for name, there in found.items() if there]


def dot(graph: Graph) -> str:
    """The graph in graphviz's language: values from outside as boxes, instructions coloured by
    what they do besides (write, draw, check) and where they are fused."""
    lines = ["digraph captured {", '  node [fontname="monospace", fontsize=10];']
    for var, name in [*((v, "input") for v in graph.inputs),
                      *zip(graph.outside(), graph.names, strict=True)]:  # fmt: skip
        label = f"{var}: {describe(graph.metas[var])}\n{name}"
        lines.append(f"  {_node(var)} [shape=box, label={quoted(label)}];")
    made = {v: _node(v) for v in (*graph.inputs, *graph.outside())}
    for number, ins in enumerate(graph.instructions):
        lines += _drawn(ins, f"i{number}", graph.metas, made)
        made.update(dict.fromkeys(ins.outputs, f"i{number}"))
    lines += [f'  {made[var]} -> "{leaf}.grad" [style=dashed];' for leaf, var in graph.grads if var]
    for place, out in enumerate(o for o in graph.outputs if isinstance(o, Var)):
        lines.append(f"  {made[out]} -> result{place};")
    return "\n".join([*lines, "}"])


def _drawn(ins: Instruction, name: str, metas: dict, made: dict[Var, str]) -> list[str]:
    label = "\n".join([ins.prim.name, *(f"{o}: {describe(metas[o])}" for o in ins.outputs)])
    kinds = ["fused"] if ins.prim.name.startswith("fused[") else effects(ins)
    colour = f', style=filled, fillcolor="{_COLOURS[kinds[0]]}"' if kinds else ""
    lines = [f"  {name} [label={quoted(label)}{colour}];"]
    given = dict.fromkeys(a for a in ins.args if isinstance(a, Var))
    return lines + [f"  {made[a]} -> {name};" for a in given]


def _node(var: Var) -> str:
    return f"{'v' if var.kind == 'v' else 'c'}{var.number}"


def quoted(label: str) -> str:
    """``label`` as a string of graphviz's language."""
    escaped = label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
