"""Passes: functions from Graph to Graph. Each is named and leaves a verified graph."""

from __future__ import annotations

from .graph import Graph, Var


def dead_code(graph: Graph) -> Graph:
    """Drop instructions without an effect whose results nobody uses.

    A view keeps what it looks at alive, and a write keeps all that shares memory with its target.
    """
    wanted: set[Var] = {o for o in graph.outputs if isinstance(o, Var)}
    keep = []
    for ins in reversed(graph.instructions):
        if ins.effect or any(o in wanted for o in ins.outputs):
            keep.append(ins)
            wanted.update(a for a in ins.args if isinstance(a, Var))
    return graph.with_instructions(reversed(keep))
