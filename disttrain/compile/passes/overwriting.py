"""Overwriting: elementwise results go where an operand lay that nobody uses afterwards.

(Buffer sharing in place: as the temporaries of an expression are reused, over a whole step.)
"""

from __future__ import annotations

from ..graph import Graph
from ..instruction import Instruction, Var
from .fusion import is_elementwise
from .liveness import Liveness
from .region import Fused, Region
from .values import inputs_of

_WORTH = 1 << 15  # bytes from which a launch of its own is worth it for a single operation


def overwrite(graph: Graph) -> Graph:
    """Mark, as ``over``, the operands of elementwise kernels that are of no further use. Single
    operations with such operands become kernels.

    Whether an operand has memory of its own, which nothing else looks at, a run shows
    (``replay.Program``)."""
    alive = Liveness(graph)
    done = [_marked(ins, i, graph, alive) for i, ins in enumerate(graph.instructions)]
    return graph.with_instructions(done)


def _marked(ins: Instruction, at: int, graph: Graph, alive: Liveness) -> Instruction:
    fused = isinstance(ins.prim, Fused)
    if not (fused or is_elementwise(ins, graph.metas)):
        return ins
    inputs = tuple(dict.fromkeys(inputs_of(ins)))
    over = free_operands(inputs, ins, at, graph, alive)
    if not over:
        return ins
    if fused:
        return Instruction(ins.prim, ins.args, {"over": over}, ins.outputs)
    region = Region([ins], inputs, ins.outputs, graph.metas)
    return Instruction(region.primitive(), inputs, {"over": over}, ins.outputs)


def free_operands(
    inputs: tuple[Var, ...], ins: Instruction, at: int, graph: Graph, alive: Liveness
) -> tuple[int, ...]:
    """Which of ``inputs`` of instruction ``at`` are of no further use, by their numbers."""
    return tuple(k for k, v in enumerate(inputs) if _is_free(v, ins, at, graph, alive))


def is_worth(ins: Instruction, alive: Liveness) -> bool:
    """Whether a single operation is worth a kernel that writes over an operand."""
    return alive.size(ins.outputs[0]) >= _WORTH


def _is_free(v: Var, ins: Instruction, at: int, graph: Graph, alive: Liveness) -> bool:
    """Whether ``v`` was made by the program, is as large as a result, and ends here; and no work
    with other ranks has seen it, which may still be under way."""
    spans = alive.spans.get(v)
    if spans is None or spans[-1] != at or spans[0] == at:
        return False
    if not any(graph.metas[v] == graph.metas[o] for o in ins.outputs):
        return False
    seen = [graph.instructions[i].prim for i in spans]
    return not any(prim.outward and getattr(prim, "keeps", True) for prim in seen)
