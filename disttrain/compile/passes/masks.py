"""Masks: of a value that is looked at again for its signs alone, these are kept in its place.

The derivative of relu asks where its result is not zero (or is nan): a byte for each element, not
four.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...core.gate import Primitive
from ...ops.primitives.elementwise import relu
from ...ops.primitives.random import masked_scale
from ..graph import Graph
from ..instruction import Instruction, Var
from ..pull import Rule
from .fusion import materialized
from .liveness import Liveness

_BOOL = np.dtype(bool)
LEAST = 1 << 16  # bytes of a value that are worth a pass over it

# (Of no region: it would run when the mask is used.)
not_zero = Primitive("not_zero", lambda y: np.not_equal(y, 0), ("y",))
not_zero.shape = lambda y: (y.shape, _BOOL)


def keep_signs(graph: Graph) -> Graph:
    """Make masks where the last look at a value is the derivative of relu, and other work stands
    before that."""
    alive, metas = Liveness(graph), dict(graph.metas)
    number = 1 + max((v.number for v in metas if v.kind == "v"), default=0)
    after: dict[int, list[Instruction]] = {}
    changed: dict[int, Instruction] = {}
    places = {i: _place(i, ins, alive) for i, ins in enumerate(graph.instructions)}
    known = materialized(graph) if any(p is not None for p in places.values()) else set()
    for i, place in places.items():
        ins = graph.instructions[i]
        if place is None or ins.args[2] not in known:
            continue
        g, _, y = ins.args
        mask, number = Var("v", number), number + 1
        metas[mask] = metas[y][0], _BOOL
        after.setdefault(place, []).append(Instruction(not_zero, (y,), {}, (mask,)))
        changed[i] = Instruction(masked_scale, (g, mask), {"scale": 1.0}, ins.outputs)
    if not changed:
        return graph
    done: list[Instruction] = []
    for i, ins in enumerate(graph.instructions):
        done += [changed.get(i, ins), *after.get(i, ())]
    return replace(graph, metas=metas).with_instructions(done)


def _place(at: int, ins: Instruction, alive: Liveness) -> int | None:
    """After which instruction the mask for this one is made; None where it is none, or no gain."""
    rule = ins.params.get("rule")
    if not isinstance(rule, Rule) or rule.node.prim is not relu or len(ins.args) != 3:
        return None
    y = ins.args[2]
    if not isinstance(y, Var) or y not in alive.spans or alive.graph.metas[y][1].char not in "fd":
        return None
    before, last = ([-1, *alive.spans[y]])[-2:]
    if last != at or before + 1 >= at or before < 0 or alive.size(y) < LEAST:
        return None
    if ins.args[0] == y or not alive.values.replaceable(y):
        return None
    return before
