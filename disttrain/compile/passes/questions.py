"""Questions early: what decides on the path is asked before writes and draws that it does not need.

Whatever comes before a question has to be undone where it is answered anew; so a loss that is read
after ``optimizer.step()`` is looked at before.
"""

from __future__ import annotations

from ..graph import Graph
from ..instruction import Instruction
from ..questions import question
from .values import Values, inputs_of


def ask_early(graph: Graph) -> Graph:
    """Move each question, and what is computed for it alone, to behind the last thing that its
    answer depends on. Questions stay in their order."""
    if not any(ins.prim is question for ins in graph.instructions):
        return graph
    values = Values(graph)
    order = list(graph.instructions)
    last = -1  # where the question before is
    for ins in graph.instructions:
        if ins.prim is question:
            at = next(i for i, other in enumerate(order) if other is ins)
            last = _moved(order, at, last, values)
    return graph.with_instructions(order)


def _moved(order: list[Instruction], at: int, last: int, values: Values) -> int:
    """Move the question ``order[at]`` to where it can be asked after ``last``; its new place."""
    wanted = set(inputs_of(order[at]))
    movable = [at]
    start = last
    for i in range(at - 1, last, -1):
        ins = order[i]
        if not any(o in wanted for o in ins.outputs):
            continue
        if not _may_move(ins, values):
            start = i
            break
        movable.append(i)
        wanted.update(inputs_of(ins))
    if not all(map(values.steady, inputs_of(order[at]))):
        return at
    moved = [order[i] for i in sorted(movable)]
    rest = [order[i] for i in range(start + 1, at) if i not in set(movable)]
    order[start + 1 : at + 1] = [*moved, *rest]
    return start + len(moved)


def _may_move(ins: Instruction, values: Values) -> bool:
    """Whether it gives the same wherever its operands are there."""
    return not ins.effect and all(map(values.steady, (*inputs_of(ins), *ins.outputs)))
