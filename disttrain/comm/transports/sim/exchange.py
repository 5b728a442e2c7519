"""What an operation does with the arrays of all members, who have met.

Reductions go through ``reduce_ops.make_reducer``, over the members in their order: the same bits
as on every other transport of ours. Knows arrays; no ranks that run, no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...calls.header import Call
from ...calls.reduce_ops import ReduceOp, make_reducer

_NONE: tuple[np.ndarray, ...] = ()


@dataclass(eq=False, slots=True)
class Part:
    """What one member brings to an operation."""

    call: Call
    verb: str  # of the transport
    ins: Sequence[np.ndarray] = _NONE
    outs: Sequence[np.ndarray] = _NONE
    op: ReduceOp | None = None
    root: int = -1
    ragged: bool = False
    ended: Callable[[BaseException | None], None] = field(default=lambda error: None)


def bytes_of(parts: Sequence[Part]) -> float:
    """What ``network.plans`` asks for: how much an operation moves."""
    first = parts[0]
    if first.verb in ("all_reduce", "broadcast"):
        return first.outs[0].nbytes
    if first.verb in ("reduce_scatter", "all_gather"):
        arrays = first.ins if first.verb == "reduce_scatter" else first.outs
        return sum(a.nbytes for a in arrays)
    if first.verb == "all_to_all":
        sent = max(sum(a.nbytes for a in part.ins) for part in parts)
        return max(sent, max(sum(a.nbytes for a in part.outs) for part in parts))
    return 0.0


def misfit(parts: Sequence[Part], ranks: Sequence[int]) -> str:
    """Two members of a ragged operation whose sizes do not fit, in words; or ``""``."""
    if not parts[0].ragged:
        return ""
    for a, sender in enumerate(parts):
        for b, receiver in enumerate(parts):
            sent, wanted = sender.ins[b].size, receiver.outs[a].size
            if sent != wanted:
                return (
                    f"rank {ranks[a]} has {sent} elements for rank {ranks[b]}, "
                    f"which expects {wanted}."
                )
    return ""


def move(parts: Sequence[Part]) -> None:
    """Move the data of an operation."""
    _MOVES[parts[0].verb](parts)


def _nothing(parts: Sequence[Part]) -> None:
    pass


def _broadcast(parts: Sequence[Part]) -> None:
    source = parts[parts[0].root].outs[0]
    for i, part in enumerate(parts):
        if i != part.root:
            part.outs[0][...] = source


def _reduced(op: Any, arrays: Sequence[np.ndarray]) -> np.ndarray:
    out = np.empty_like(arrays[0])
    make_reducer(op, out.dtype, len(arrays))(arrays, out)
    return out


def _all_reduce(parts: Sequence[Part]) -> None:
    total = _reduced(parts[0].op, [part.outs[0] for part in parts])
    for part in parts:
        part.outs[0][...] = total


def _reduce_scatter(parts: Sequence[Part]) -> None:
    for i, part in enumerate(parts):  # an output may be that rank's own input for itself, only
        if part.outs[0].size:
            part.outs[0][...] = _reduced(part.op, [other.ins[i] for other in parts])


def _all_gather(parts: Sequence[Part]) -> None:
    sources = [part.ins[0] for part in parts]
    for part in parts:
        _gather_into(part.outs, sources)


def _gather_into(outs: Sequence[np.ndarray], sources: Sequence[np.ndarray]) -> None:
    for out, source in zip(outs, sources, strict=True):
        if source.size:
            out[...] = source


def _all_to_all(parts: Sequence[Part]) -> None:
    for i, part in enumerate(parts):
        for out, other in zip(part.outs, parts, strict=True):
            if out.size:
                out[...] = other.ins[i]


_MOVES: dict[str, Callable[[Sequence[Part]], None]] = {
    "barrier": _nothing,
    "split": _nothing,
    "close": _nothing,
    "broadcast": _broadcast,
    "all_reduce": _all_reduce,
    "reduce_scatter": _reduce_scatter,
    "all_gather": _all_gather,
    "all_to_all": _all_to_all,
}
