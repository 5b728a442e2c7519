"""What instructions compute, as expressions."""

from __future__ import annotations

from collections.abc import Mapping

from ...backends.lang import expr as ex
from ...errors import DisttrainError
from ..instruction import Instruction, Var
from .symbol import Symbol, Unfit

_UNFIT = (Unfit, DisttrainError, TypeError, AttributeError, ValueError, NotImplementedError)


def named(name: str, meta: tuple, fast: bool) -> Symbol:
    """An element of an array that a kernel knows by ``name``; ``meta``: its shape and type."""
    shape, dtype = meta
    return Symbol(ex.var(name), shape, dtype, fast)


def evaluate(ins: Instruction, values: Mapping[Var, Symbol]) -> tuple[Symbol, ...]:
    """The results of ``ins`` on ``values``. Raises ``Unfit`` where it has no expression."""
    found = ins.prim.compute(tuple(values[a] if isinstance(a, Var) else a for a in ins.args),
                             ins.params)  # fmt: skip
    found = found if isinstance(found, tuple) else (found,)
    if len(found) != len(ins.outputs) or not all(isinstance(r, Symbol) for r in found):
        raise Unfit(ins.prim.name)
    return found


def expressions_of(ins: Instruction, metas: dict, fast: bool = False) -> tuple[Symbol, ...] | None:
    """The results of ``ins`` on values of the names that they have in the graph; None where they
    have no expression, or not these shapes and types."""
    if ins.effect or ins.prim.view or not ins.outputs:
        return None
    given = {a: named(str(a), metas[a], fast) for a in ins.args if isinstance(a, Var)}
    if not given:
        return None
    try:
        found = evaluate(ins, given)
    except _UNFIT:
        return None
    told = [(tuple(shape), kind) for shape, kind in (metas[o] for o in ins.outputs)]
    return found if [(r.shape, r.dtype) for r in found] == told else None
