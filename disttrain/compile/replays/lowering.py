"""Lowering: what a replay calls for an instruction, where shapes and types of operands tell enough.

An eager call looks at types, dimensions and places of gradients each time; in a graph of arrays of
the host's they are known. The arithmetic is the same, by the same functions. What arrays must be
asked for (how they lie, whether kernels are there) is asked by who is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...backends.fused import cross_entropy as losses
from ...core.types.wide import total
from ...ops.primitives.linalg import by_other_order, by_panels, by_rows, linear, product
from ...ops.primitives.loss import cross_entropy_rows
from ..instruction import Instruction, Var
from ..pull import Rule

Run = Callable[..., Any]


def lowered(ins: Instruction, metas: dict) -> Run | None:
    """A function of the instruction's arguments as arrays of numpy's; None where its own is as
    good."""
    given = [metas[a] if isinstance(a, Var) else None for a in ins.args]
    rule = ins.params.get("rule")
    if isinstance(rule, Rule):
        derivative = _DERIVATIVES.get(rule.node.prim)
        return None if derivative is None else derivative(rule, given)
    operation = _OPERATIONS.get(ins.prim)
    return None if operation is None else operation(ins.params, given)


def _alike(*metas: tuple | None) -> bool:
    """Whether all are of one type, in which there is arithmetic."""
    kinds = {meta[1] for meta in metas if meta is not None}
    return len(kinds) == 1 and kinds.pop().char in "fd"


def _linear(params: dict, given: list) -> Run | None:
    """``x @ w.T + b`` of matrices."""
    x, w, b = given
    if len(x[0]) != 2 or not _alike(x, w, b):
        return None
    run = by_rows if by_other_order(*x, *w) else _by_transpose
    return run if b is None else _biased(run)


def _by_transpose(x: Any, w: Any, b: None = None) -> Any:
    return product(x, w.T)


def _biased(multiplied: Run) -> Run:
    def run(x: Any, w: Any, b: Any) -> Any:
        out = multiplied(x, w)
        out += b
        return out

    return run


def _linear_backward(rule: Rule, given: list) -> Run | None:
    """Of g, x, w and the bias, which is not looked at."""
    g, *saved = given
    if len(g[0]) != 2 or rule.ends or len(saved) != 3 or not _alike(g, *saved):
        return None
    dx, dw, db = rule.needs
    if (dw and (saved[0] is None or len(saved[0][0]) != 2)) or (dx and saved[1] is None):
        return None
    if all(rule.needs):
        return lambda g, x, w, b: (product(g, w), by_panels(g.T, x), total(g, (0,), False))

    def run(g: Any, x: Any, w: Any, b: Any) -> tuple:
        found = [product(g, w)] if dx else []
        if dw:
            found.append(by_panels(g.T, x))
        if db:
            found.append(total(g, (0,), False))
        return tuple(found)

    return run


def _losses(params: dict, given: list) -> Run | None:
    a, target, weight = given
    if weight is not None or target[1] != np.int64 or not _alike(a):
        return None
    return losses.prepared(*a, **params)


def _losses_backward(rule: Rule, given: list) -> Run | None:
    """Of three gradients (that of the loss counts), logits, targets, weights, and the results."""
    target, params = given[4] if len(given) == 9 else None, rule.node.params
    if target is None or given[5] is not None or target[1] != np.int64 or not _alike(given[3]):
        return None
    if params["reduction"] == "none" or rule.needs != (True, False, False):
        return None
    (shape, kind), how = given[3], (params["ignore_index"], params["smoothing"])
    whole = losses.prepared_backward(shape, kind, *how)
    if params["reduction"] == "sum":
        return lambda g, _1, _2, a, t, w, out, lse, count: (whole(float(g), a, t, lse),)
    return lambda g, _1, _2, a, t, w, out, lse, count: (whole(float(g / count), a, t, lse),)


_OPERATIONS: dict[Any, Callable[[dict, list], Run | None]] = {
    linear: _linear,
    cross_entropy_rows: _losses,
}
_DERIVATIVES: dict[Any, Callable[[Rule, list], Run | None]] = {
    linear: _linear_backward,
    cross_entropy_rows: _losses_backward,
}
