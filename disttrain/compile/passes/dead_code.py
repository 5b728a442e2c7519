"""Dead code: instructions that nobody needs."""

from __future__ import annotations

from ..graph import Graph
from ..instruction import Var


def dead_code(graph: Graph) -> Graph:
    """Drop instructions without an effect whose results nobody uses.

    Writes stay, and what they write to; so do draws of random numbers, which move a generator.
    """
    wanted: set[Var] = set(graph.results())
    keep = []
    for ins in reversed(graph.instructions):
        if ins.effect or any(o in wanted for o in ins.outputs):
            keep.append(ins)
            wanted.update(a for a in ins.args if isinstance(a, Var))
    return graph.with_instructions(keep[::-1])
