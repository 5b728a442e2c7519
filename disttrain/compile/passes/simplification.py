"""Algebraic simplification: rules that give the same bits for every number, nan and -0 too.

(x + 0.0 is none: it makes 0.0 of -0.0. x - 0.0 is one.) The operand that stands for a result must
be laid out in memory as the result would be, since sums add in the order of memory: it is one that
an elementwise operation has made, and so without gaps.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..graph import Graph
from ..instruction import Instruction, Var
from ..pull import Rule
from .expressions import expressions_of
from .values import Values


def simplify(graph: Graph) -> Graph:
    """Let an operand stand for a result that equals it, where nobody can tell the two apart."""
    values, names, made = Values(graph), dict[Var, Var](), dict[Var, Instruction]()
    kept = []
    for ins in graph.instructions:
        ins = ins.renamed(names)
        names.update(_handed_through(ins, values))
        same = _equal_operand(ins, made, graph.metas)
        dense = same in made and made[same].prim.elementwise
        if same is not None and dense and _may_stand_for(same, ins.outputs[0], values):
            names[ins.outputs[0]] = same
            continue
        made.update(dict.fromkeys(ins.outputs, ins))
        kept.append(ins)
    return graph.with_instructions(kept) if names else graph


def _handed_through(ins: Instruction, values: Values) -> dict[Var, Var]:
    """The gradients that a rule gives on as they came (of sums, of detours that do nothing), by
    what they came as: eagerly both are one array."""
    if not isinstance(ins.params.get("rule"), Rule):
        return {}
    given = {str(a): a for a in ins.args if isinstance(a, Var)}
    found = expressions_of(ins, values.metas) or ()
    pairs = [(o, given.get(str(r.expr.attr))) for o, r in zip(ins.outputs, found, strict=False)
             if r.expr.op == "var"]  # fmt: skip
    return {o: a for o, a in pairs if a is not None and _may_stand_for(a, o, values)}


def _may_stand_for(operand: Var, result: Var, values: Values) -> bool:
    return (
        values.replaceable(result)
        and values.steady(operand)
        and values.metas[operand] == values.metas[result]
    )


def _equal_operand(ins: Instruction, made: dict, metas: dict) -> Var | None:
    """The value that the only result of ``ins`` equals, if there is one."""
    if len(ins.outputs) != 1 or ins.effect or not ins.args or not isinstance(ins.args[0], Var):
        return None
    a = ins.args[0]
    before = made.get(a)
    name = ins.prim.name
    if name in _NEUTRAL and _NEUTRAL[name](ins.args[1]):
        return a
    if name == "neg" and before is not None and before.prim.name == "neg":
        return _first(before)
    if name == "cast":
        return _cast_back(ins, a, before, metas)
    return None


def _first(ins: Instruction) -> Var | None:
    return ins.args[0] if isinstance(ins.args[0], Var) else None


def _cast_back(ins: Instruction, a: Var, before: Any, metas: dict) -> Var | None:
    """``a``, where it has the type already; what it was cast from without loss, where that has."""
    kind = np.dtype(ins.params["dtype"])
    if metas[a][1] == kind:
        return a
    if before is None or before.prim.name != "cast" or _first(before) is None:
        return None
    source = metas[before.args[0]][1]
    return before.args[0] if source == kind and _holds(metas[a][1], kind) else None


def _holds(wide: np.dtype, narrow: np.dtype) -> bool:
    """Whether every number of ``narrow`` is one of ``wide``."""
    floats = {"float32": 1, "float16": 0, "bfloat16": 0, "float64": 2}
    if wide.name not in floats or narrow.name not in floats:
        return False
    return floats[wide.name] > floats[narrow.name]


def _is_one(x: object) -> bool:
    return type(x) in (int, float) and x == 1


def _is_plain_zero(x: Any) -> bool:
    return type(x) in (int, float) and _sign(x) > 0 and x == 0


def _sign(x: float) -> float:
    return math.copysign(1.0, x)


def _is_negative_zero(x: object) -> bool:
    return type(x) is float and x == 0 and _sign(x) < 0


# By which second operand an operation gives back the first one.
_NEUTRAL = {
    "mul": _is_one,
    "div": _is_one,
    "sub": _is_plain_zero,
    "add": _is_negative_zero,
    "pow": _is_one,
}
