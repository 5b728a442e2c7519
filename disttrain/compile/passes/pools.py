"""Pools: where windows had their largest value is kept until backward, in place of what they saw.

A byte for each window, not all that the layer before made.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from ...core.gate import Primitive
from ...ops.primitives.elementwise import relu
from ...ops.primitives.pool import MOST_TAPS, max_pool, places, spread_to
from ..graph import Graph
from ..instruction import Instruction, Var
from ..pull import Rule
from .liveness import Liveness
from .masks import LEAST

_BYTE = np.dtype(np.uint8)

max_pool_places = Primitive("max_pool_places", places, ("a", "best"))
max_pool_places.shape = lambda a, best, **how: (best.shape, _BYTE)
spread_to_places = Primitive("spread_to_places", spread_to, ("g", "found"))
spread_to_places.shape = lambda g, found, size, **how: ((*g.shape[:2], *size), g.dtype)


def keep_places(graph: Graph) -> Graph:
    """Let the gradients of max pools go by places, where what they look at could then be given up
    (but for its signs: ``masks``)."""
    alive, metas = Liveness(graph), dict(graph.metas)
    number = 1 + max((v.number for v in metas if v.kind == "v"), default=0)
    made = {ins.outputs[0]: i for i, ins in enumerate(graph.instructions) if ins.prim is max_pool}
    after: dict[int, Instruction] = {}
    changed: dict[int, Instruction] = {}
    for i, ins in enumerate(graph.instructions):
        first = _first(i, ins, made, alive)
        if first is None:
            continue
        g, y, best = ins.args
        found, number = Var("v", number), number + 1
        metas[found] = metas[best][0], _BYTE
        how = graph.instructions[first].params
        after[first] = Instruction(max_pool_places, (y, best), how, (found,))
        params = {**how, "size": tuple(metas[y][0][2:])}
        changed[i] = Instruction(spread_to_places, (g, found), params, ins.outputs)
    if not changed:
        return graph
    done: list[Instruction] = []
    for i, ins in enumerate(graph.instructions):
        done += [changed.get(i, ins), *([after[i]] if i in after else [])]
    return replace(graph, metas=metas).with_instructions(done)


def _first(at: int, ins: Instruction, made: dict[Any, int], alive: Liveness) -> int | None:
    """Which instruction is the pool whose gradient this one is; None where that is not to go by
    places."""
    if not _is(ins, max_pool) or len(ins.args) != 3:
        return None
    _, y, best = ins.args
    first = made.get(best)
    if first is None or alive.graph.instructions[first].args != (y,) or y not in alive.spans:
        return None
    how = alive.graph.instructions[first].params
    if prod(how["kernel"]) > MOST_TAPS or alive.graph.metas[y][1].char not in "fd":
        return None
    later = [alive.graph.instructions[i] for i in alive.spans[y] if first < i != at]
    small = alive.size(y) < LEAST or not alive.values.replaceable(y)
    return None if small or not _for_signs(later, y) else first


def _for_signs(instructions: Iterable[Instruction], y: Var) -> bool:
    return all(_is(ins, relu) and ins.args[2] == y != ins.args[0] for ins in instructions)


def _is(ins: Instruction, prim: Primitive) -> bool:
    """Whether it is a derivative of ``prim``."""
    rule = ins.params.get("rule")
    return isinstance(rule, Rule) and rule.node.prim is prim
