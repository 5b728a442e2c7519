"""Sums over rows: gradients of biases are operations of their own, where the kernel that makes what
is summed can add it up, too (``fuse_rows``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from ....core.gate import Primitive
from ....core.types.wide import BLOCK, SHORT, of_blocks, total
from ....ops.primitives.linalg import linear
from ....ops.primitives.reduce import sum_
from ...graph import Graph
from ...instruction import Instruction, Var
from ...pull import Rule
from ..fusion import is_elementwise
from .operations import LEAST_COLUMNS, operation_of


def _sums(g: np.ndarray) -> Any:
    return total(g.reshape(prod(g.shape[:-1]), g.shape[-1]), (0,), False)


# The sums of the columns, in the order in which a bias's gradient is added up.
column_sums = Primitive("column_sums", _sums, ("g",))


def take_sums(graph: Graph) -> Graph:
    """Let gradients of biases be made by the kernel that makes the gradient they are sums of."""
    return graph.with_instructions(sums_apart(graph.instructions, graph.metas))


def sums_apart(instructions: Sequence[Instruction], metas: dict) -> list[Instruction]:
    """``instructions`` with such sums as operations of their own."""
    made = set(_made(instructions, metas))
    sums = {ins.args[0]: _added(ins) for ins in instructions if _has_sums(ins, made)}
    done: list[Instruction] = []
    for ins in instructions:
        # (Of what two products are given, each with a bias, the second one adds up itself.)
        first = _has_sums(ins, made) and sums[ins.args[0]].outputs[0] == ins.outputs[-1]
        done.append(_rest(ins) if first else ins)
        done += [sums[v] for v in ins.outputs if v in sums]
    return done


def _made(instructions: Iterable[Instruction], metas: dict) -> Iterator[Var]:
    """What kernels make that can add it up, and nothing writes to."""
    written = _written(instructions)
    for ins in instructions:
        if (
            not ins.outputs
            or ins.outputs[0] in written
            or metas[ins.outputs[0]][1].char not in "fd"
        ):
            continue
        shape = metas[ins.outputs[0]][0]
        fits = is_elementwise(ins, metas) or operation_of(ins, metas) is not None
        if len(shape) > 1 and shape[-1] >= LEAST_COLUMNS and fits:
            yield ins.outputs[0]


def _written(instructions: Iterable[Instruction]) -> set[Var]:
    """The values whose memory is written to, by their own name or that of a view."""
    roots: dict[Var, Var] = {}
    written: set[Var] = set()
    for ins in instructions:
        if ins.prim.view:
            roots.update((o, roots.get(ins.args[0], ins.args[0])) for o in ins.outputs)
        written.update(roots.get(ins.args[i], ins.args[i]) for i in ins.prim.mutates)
    return written


def _has_sums(ins: Instruction, made: set[Var]) -> bool:
    rule = ins.params.get("rule")
    if not isinstance(rule, Rule) or rule.node.prim is not linear or ins.args[0] not in made:
        return False
    _, _, bias = rule.needs
    return bias and len(ins.outputs) == sum(rule.needs) > 1 and not rule.ends


def _added(ins: Instruction) -> Instruction:
    return Instruction(column_sums, ins.args[:1], {}, ins.outputs[-1:])


def _rest(ins: Instruction) -> Instruction:
    rule = ins.params["rule"]
    others = {"rule": rule.only((*rule.needs[:-1], False))}
    return replace(ins, params=others, outputs=ins.outputs[:-1])


def summed(ins: Instruction, metas: dict) -> Var | None:
    """What ``ins`` adds up over all its rows; None where it does something else."""
    if not ins.args or not isinstance(ins.args[0], Var):
        return None
    shape, kind = metas[ins.args[0]]
    if kind.char not in "fd" or len(shape) < 2 or 0 in shape or shape[-1] < LEAST_COLUMNS:
        return None
    plain = ins.prim is sum_ and len(shape) == 2 and tuple(ins.params["dims"]) == (0,)
    wanted = ins.prim is column_sums or (plain and not ins.params["keepdim"])
    return ins.args[0] if wanted else None


def lines_of(rows: int, columns: int) -> int:
    """How many rows are added up one after the other, before their sum joins the others."""
    return BLOCK if rows * columns > SHORT and rows > BLOCK else rows


def joined(lines: np.ndarray) -> np.ndarray:
    """The sum from those of ``lines_of`` rows each."""
    found: np.ndarray = lines[0] if len(lines) == 1 else of_blocks(lines, (0,), False, lines.dtype)
    return found
