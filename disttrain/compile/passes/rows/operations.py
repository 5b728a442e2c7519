"""Operations on rows, as the kernels that they run in an eager call.

Whatever runs in a joint kernel is made of these, so that sums are added up in the same order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....backends.fused import softmax
from ....backends.fused.normalization import norms
from ....backends.lang.kernel import Kernel
from ....ops.primitives.norm import layer_norm_rows, rms_norm_rows
from ....ops.primitives.softmax import (
    log_softmax_,
    log_softmax_backward,
    softmax_,
    softmax_backward,
)
from ...instruction import Instruction, Var
from ...pull import Rule

LEAST_COLUMNS = 2


@dataclass(frozen=True)
class RowOperation:
    """``given``: the values that the arrays of the kernel are; ``made``: those that they become;
    ``sums``: those that are sums over rows; ``numbers``: of its scalars, given the columns."""

    kernel: Kernel
    given: dict[str, Var]
    made: dict[str, Var]
    sums: dict[str, Var] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)


def operation_of(ins: Instruction, metas: dict) -> RowOperation | None:
    """What ``ins`` is on the rows of float32 or float64 that its first result has; None where it is
    no such operation."""
    if ins.effect or not ins.outputs or ins.outputs[0] not in metas:
        return None
    rule = ins.params.get("rule")
    prim = rule.node.prim if isinstance(rule, Rule) else ins.prim
    make = (_DERIVATIVES if isinstance(rule, Rule) else _OPERATIONS).get(prim)
    shape, kind = metas[ins.outputs[0]]
    if make is None or len(shape) < 2 or 0 in shape or shape[-1] < LEAST_COLUMNS:
        return None
    return make(ins, kind.name, len(shape)) if kind.char in "fd" else None


def numbers_of(operation: RowOperation, columns: int) -> dict[str, float]:
    """The numbers of its scalars for rows of so many columns."""
    shares = [s.name for s in operation.kernel.scalars if s.name == "share"]
    return {**operation.numbers, **dict.fromkeys(shares, 1.0 / columns)}


_softmax_kernel = functools.cache(softmax.kernel)
_norm_kernel = functools.cache(norms.kernel)


# --- softmax --------------------------------------------------------------------------------
def _softmax(name: str) -> Callable[..., RowOperation | None]:
    def make(ins: Instruction, kind: str, axes: int) -> RowOperation | None:
        if ins.params["dim"] != axes - 1:
            return None
        return RowOperation(
            _softmax_kernel(name, kind), {"x": ins.args[0]}, {"out": ins.outputs[0]}
        )

    return make


def _softmax_backward(name: str) -> Callable[..., RowOperation | None]:
    """The derivative rule has the gradient first, the result last; the operation, both alone."""

    def make(ins: Instruction, kind: str, axes: int) -> RowOperation | None:
        rule = ins.params.get("rule")
        params = rule.node.params if isinstance(rule, Rule) else ins.params
        given = {"g": ins.args[0], "y": ins.args[-1]}
        if params["dim"] != axes - 1 or not all(isinstance(v, Var) for v in given.values()):
            return None
        return RowOperation(_softmax_kernel(name, kind), given, {"out": ins.outputs[0]})

    return make


# --- norms ----------------------------------------------------------------------------------
def _norm(name: str, rows: tuple[str, ...]) -> Callable[..., RowOperation | None]:
    def make(ins: Instruction, kind: str, axes: int) -> RowOperation | None:
        given = dict(zip(("x", "weight", "bias"), ins.args, strict=False))
        given = {k: v for k, v in given.items() if v is not None}
        kernel = _norm_kernel(name, kind, "weight" in given, "bias" in given)
        made = dict(zip(("out", *rows), ins.outputs, strict=True))
        return RowOperation(kernel, given, made, {}, {"eps": float(ins.params["eps"])})

    return make


def _norm_backward(name: str, rows: tuple[str, ...]) -> Callable[..., RowOperation | None]:
    """Of gradients (that of the first result counts), what was given, and the results."""

    def make(ins: Instruction, kind: str, axes: int) -> RowOperation | None:
        rule: Any = ins.params["rule"]
        saved = ins.args[rule.gradients :]
        columns = [v for v, need in zip(("dweight", "dbias"), rule.needs[1:], strict=False) if need]
        weight = saved[1] if isinstance(saved[1], Var) else None
        if not rule.needs[0] or len(ins.outputs) != 1 + len(columns):
            return None
        if (weight is None and columns) or (weight is not None and columns != _COLUMNS[name]):
            return None
        given = {"g": ins.args[0], "x": saved[0]}
        given.update(zip(rows, ins.args[-len(rows) :], strict=True))
        if weight is not None:
            given["weight"] = weight
        if not all(isinstance(v, Var) for v in given.values()):
            return None
        kernel = _norm_kernel(name, kind, weight is not None, False)
        sums = dict(zip(columns, ins.outputs[1:], strict=True))
        return RowOperation(kernel, given, {"out": ins.outputs[0]}, sums)

    return make


_COLUMNS = {"layer_norm_backward": ["dweight", "dbias"], "rms_norm_backward": ["dweight"]}
_OPERATIONS: dict[Any, Callable[..., RowOperation | None]] = {
    softmax_: _softmax("softmax"),
    log_softmax_: _softmax("log_softmax"),
    softmax_backward: _softmax_backward("softmax_backward"),
    log_softmax_backward: _softmax_backward("log_softmax_backward"),
    layer_norm_rows: _norm("layer_norm", ("means", "rstds")),
    rms_norm_rows: _norm("rms_norm", ("rstds",)),
}
_DERIVATIVES: dict[Any, Callable[..., RowOperation | None]] = {
    softmax_: _softmax_backward("softmax_backward"),
    log_softmax_: _softmax_backward("log_softmax_backward"),
    layer_norm_rows: _norm_backward("layer_norm_backward", ("mean", "rstd")),
    rms_norm_rows: _norm_backward("rms_norm_backward", ("rstd",)),
}


def kinds_of(ins: Instruction, metas: dict) -> set[np.dtype]:
    """The types of all that it reads and makes."""
    return {metas[v][1] for v in (*ins.args, *ins.outputs) if isinstance(v, Var)}
