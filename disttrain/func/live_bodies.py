"""Loops and branches whose functions run as they are, turn by turn: where their collectives have
to meet those of other ranks or examples, and where derivatives inside ask which values vary along
an axis, which a staged function does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import tree
from ..core.gate import Tracer
from ..core.tensor import Tensor
from ..core.types import dtypes
from ..errors import CaptureError
from ..ops.functions.creation import create
from ..ops.functions.elementwise import where
from ..ops.functions.views.join import stack
from .staging import Staged


def turned(
    body: Staged, init: Sequence[Tensor], xs: Sequence[Tensor], turns: range
) -> tuple[list[Tensor], list[Tensor]]:
    """A scan over ``turns``: what is carried at the end, and the slices of each result, stacked."""
    n, carry = len(init), list(init)
    rows: dict[int, list] = {}
    for i in turns:
        outs = tree.leaves(body.fn(*carry, *[x[i] for x in xs]))
        carry, rows[i] = outs[:n], outs[n:]
    if not rows:
        metas = body.results[n:]
        return carry, [create.zeros(0, *shape, dtype=dtypes.of(kind)) for shape, kind in metas]
    columns = zip(*[rows[i] for i in sorted(rows)], strict=True)
    return carry, [stack(list(column)) for column in columns]


def turned_while(cond: Staged, body: Staged, init: Sequence[Tensor]) -> list[Tensor]:
    """A loop while any example wants to; those that do not stay as they are."""
    carry = list(init)
    while True:
        (going,) = tree.leaves(cond.fn(*carry))
        plain, apart = _numbers(going)
        if plain is None:
            raise CaptureError(
                "while_loop: its body has collectives over a named axis, and it is staged where "
                "nobody knows how often it turns; use scan, or leave jit out"
            )
        if not bool(plain.any()):
            return carry
        outs = tree.leaves(body.fn(*carry))
        pairs = zip(outs, carry, strict=True)
        carry = [where(going, new, old) for new, old in pairs] if apart else outs


def chosen(index: Tensor, branches: Sequence[Staged], operands: Sequence[Tensor]) -> list[Tensor]:
    """What the branch of that number gives; all run, where there is one for each example."""
    plain, apart = _numbers(index)
    last = len(branches) - 1
    if plain is not None and not apart:
        return tree.leaves(branches[min(max(int(plain), 0), last)].fn(*operands))
    outs = tree.leaves(branches[last].fn(*operands))
    for i in reversed(range(last)):
        found = tree.leaves(branches[i].fn(*operands))
        outs = [where(index <= i, a, b) for a, b in zip(found, outs, strict=True)]
    return outs


def _numbers(value: Any) -> tuple[Any, bool]:
    """The plain tensor below all transforms, None where there is none yet; whether examples have
    one each."""
    apart = False
    while isinstance(value, Tracer):
        if getattr(value.interp, "staging", False):
            return None, apart
        apart = apart or getattr(value, "bdim", None) is not None
        value = value.inner
    return value, apart
