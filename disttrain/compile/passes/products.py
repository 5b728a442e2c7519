"""Gradients of products of matrices, one after the other: that of the weight first.

What a layer was given is of no further use then, and its memory is free when the gradient of the
input is made. (One call is the shorter one for small arrays.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from ...ops.primitives.linalg import linear
from ..graph import Graph
from ..instruction import Instruction
from ..pull import Rule
from .masks import LEAST


def part_products(graph: Graph) -> Graph:
    """Let the gradients of ``linear`` be two instructions where it has those of both operands."""
    done: list[Instruction] = []
    for ins in graph.instructions:
        rule = ins.params.get("rule")
        if isinstance(rule, Rule) and rule.node.prim is linear and _both(rule, ins, graph.metas):
            done += _apart(ins, rule)
        else:
            done.append(ins)
    return graph.with_instructions(done) if len(done) > len(graph.instructions) else graph


def _both(rule: Rule, ins: Instruction, metas: dict) -> bool:
    dx, dw, _ = rule.needs
    if not (dx and dw and len(ins.args) == 4 and len(ins.outputs) == sum(rule.needs)):
        return False
    shape, kind = metas[ins.args[1]]
    return prod(shape) * kind.itemsize >= LEAST


def _apart(ins: Instruction, rule: Rule) -> Iterator[Instruction]:
    g, x, w, bias = ins.args
    _, *others = rule.needs
    dx, *rest = ins.outputs
    whole = rule.only((False, *others))
    yield replace(ins, args=(g, x, None, bias), params={"rule": whole}, outputs=tuple(rest))
    whole = rule.only((True, False, False))
    yield replace(ins, args=(g, None, w, None), params={"rule": whole}, outputs=(dx,))
