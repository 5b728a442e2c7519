"""Biases: what a product of matrices has added is an addition of its own, which joins what follows.

So the bias, an activation and what is left of a residual are one pass over the product, where it
lies (``fuse``, ``overwrite``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...ops.primitives.elementwise import add
from ...ops.primitives.linalg import linear
from ..graph import Graph
from ..instruction import Instruction, Var
from .values import Values


def take_biases(graph: Graph) -> Graph:
    """Let products of matrices be followed by the addition of their bias."""
    values, metas = Values(graph), dict(graph.metas)
    number = 1 + max((v.number for v in metas if v.kind == "v"), default=0)
    done: list[Instruction] = []
    for ins in graph.instructions:
        if not _has_bias(ins, graph, values):
            done.append(ins)
            continue
        product = Var("v", number)
        metas[product], number = metas[ins.outputs[0]], number + 1
        done += _apart(ins, product)
    return replace(graph, metas=metas).with_instructions(done)


def _apart(ins: Instruction, product: Var) -> Iterator[Instruction]:
    x, w, bias = ins.args
    yield replace(ins, args=(x, w, None), outputs=(product,))
    yield Instruction(add, (product, bias), {}, ins.outputs)


def _has_bias(ins: Instruction, graph: Graph, values: Values) -> bool:
    """Whether it has, in a type in which the sum is rounded by itself, too."""
    if ins.prim is not linear or not isinstance(ins.args[2], Var):
        return False
    (shape, kind), (out,) = graph.metas[ins.args[2]], ins.outputs
    same = kind == graph.metas[out][1] and shape == graph.metas[out][0][-1:]
    return same and kind.char in "fd" and 0 not in graph.metas[out][0] and values.steady(out)
