"""Common subexpressions: the same operation on the same values runs once.

(Local value numbering: A. V. Aho et al., Compilers, 2nd ed., section 8.5.)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..graph import Graph
from ..instruction import Instruction, Var
from .values import Values, inputs_of


def merge_subexpressions(graph: Graph) -> Graph:
    """Let the first of several instructions that compute the same stand for all.

    Those that draw, check, write or show memory stay, and so do those whose operands are written to
    anywhere, and results that the program hands on: each is an object of its own there.
    """
    values = Values(graph)
    first: dict[Any, tuple[Var, ...]] = {}
    names: dict[Var, Var] = {}
    kept = []
    for ins in graph.instructions:
        ins = ins.renamed(names)
        key = _key(ins) if _repeatable(ins, values) else None
        known = None if key is None else first.setdefault(key, ins.outputs)
        if known is None or known is ins.outputs or not all(map(values.replaceable, ins.outputs)):
            kept.append(ins)
        else:
            names.update(zip(ins.outputs, known, strict=True))
    return graph.with_instructions(kept) if names else graph


def _repeatable(ins: Instruction, values: Values) -> bool:
    if ins.effect or ins.prim.view or not ins.outputs:
        return False
    return all(map(values.steady, (*inputs_of(ins), *ins.outputs)))


def _key(ins: Instruction) -> Any:
    """What two instructions have in common that compute the same; None where that cannot be told.
    (0.0 and -0.0, and 1 and True, are equal to Python, but not the same operand.)"""
    parts = [*ins.args, *(x for pair in sorted(ins.params.items()) for x in pair)]
    found = tuple(_part(x) for x in parts)
    return None if None in found else (ins.prim, found)


def _part(x: object) -> Any:
    if isinstance(x, Var):
        return x
    if isinstance(x, (tuple, list)):
        inner = tuple(_part(y) for y in x)
        return None if None in inner else (type(x), inner)
    if x is None or isinstance(x, (bool, int, float, complex, str, np.dtype, np.generic, slice)):
        return type(x), repr(x)
    return None
