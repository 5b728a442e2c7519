"""Constant folding: what is computed from constants alone is computed once."""

from __future__ import annotations

from dataclasses import replace

from ...core.gate import finish
from ...core.tensor import wrap
from ..graph import Graph
from ..instruction import Instruction, Var
from ..sized import is_sized
from .values import Values, inputs_of

_SMALL = 1 << 16  # bytes that a folded value may have, whatever it is made of


def fold_constants(graph: Graph) -> Graph:
    """Let values that are made of constants be constants. Values that the program hands on are new
    in each run, and stay; so does what would take more memory than what it is made of."""
    values = Values(graph)
    constants = {v: array for v, array in graph.constants.items() if values.steady(v)}
    captured, names = list(graph.captured), list(graph.names)
    metas, renamed, kept = dict(graph.metas), dict[Var, Var](), []
    for ins in graph.instructions:
        ins = ins.renamed(renamed)
        if not _foldable(ins, constants, values, metas):
            kept.append(ins)
            continue
        made = ins.prim.compute([constants.get(a, a) for a in ins.args], ins.params)
        var = Var("c", len(captured))
        captured.append(wrap(finish(made[0] if ins.prim.multi else made)))
        names.append(f"{ins.prim.name} of constants")
        metas[var] = metas[ins.outputs[0]]
        constants[var] = captured[-1].array
        renamed[ins.outputs[0]] = var
    if not renamed:
        return graph
    return replace(
        graph,
        captured=tuple(captured),
        names=tuple(names),
        metas=metas,
        constants=constants,
        there=graph.there | {new for old, new in renamed.items() if old in graph.there},
        instructions=tuple(kept),
    ).verify()


def _foldable(ins: Instruction, constants: dict, values: Values, metas: dict) -> bool:
    given = list(inputs_of(ins))
    if is_sized((ins.args, ins.params, metas[ins.outputs[0]][0] if ins.outputs else ())):
        return False
    if ins.effect or ins.prim.view or len(ins.outputs) != 1 or not given:
        return False
    if not all(v in constants for v in given) or not values.replaceable(ins.outputs[0]):
        return False
    return _bytes(metas[ins.outputs[0]]) <= max(_SMALL, sum(_bytes(metas[v]) for v in given))


def _bytes(meta: tuple) -> int:
    size = meta[1].itemsize
    for n in meta[0]:
        size *= n
    return size
