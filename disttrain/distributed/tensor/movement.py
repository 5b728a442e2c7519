"""Changing placements: which step each mesh axis takes (pure), and the steps themselves.

``plan`` says in which order axes move so that every step sees pieces that are cut only by axes left
of it: first, from the last axis to the first, what must leave its place (straight to another shard
or through the whole), then, from the first to the last, cuts of what is whole. A step is one
collective of the axis' group, or a local cut. Numbers are never moved that no step needs.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ...backends.device.memory import Memory, memory_of
from ...backends.null import NullArray
from ...comm.calls.reduce_ops import ReduceOp
from ...comm.group.group import ProcessGroup
from ...errors import PlacementError
from .placements import (
    Partial,
    Placement,
    Replicate,
    Shard,
    _StridedShard,
    cuts,
    local_shape,
    local_span,
    piece,
)
from .spread import Spread


class Step(NamedTuple):
    """Mesh axis ``axis`` goes from one placement to another; ``before`` is how all axes lie."""

    axis: int
    source: Placement
    target: Placement
    before: tuple


def plan(source: tuple, target: tuple) -> list[Step]:
    """The steps from ``source`` to ``target`` placements."""
    now, steps = list(source), []
    stay = _stay(source, target)

    def go(axis: int, to: Placement) -> None:
        steps.append(Step(axis, now[axis], to, tuple(now)))
        now[axis] = to

    for axis in _leaving_order(source):
        have, want = now[axis], target[axis]
        if axis in stay or isinstance(have, Replicate):
            continue
        straight = isinstance(want, Shard) and _may_cut_now(axis, now, target)
        if isinstance(want, Shard) and not straight:
            want = Replicate()
        if isinstance(want, Partial):
            want = Replicate()
        go(axis, want)
    for axis in _cutting_order(target):
        if now[axis] != target[axis]:
            go(axis, target[axis])
    return steps


def _stay(source: tuple, target: tuple) -> set[int]:
    """The axes that need not move: equal, and no axis that cut before them does."""
    stay = {a for a, (p, q) in enumerate(zip(source, target, strict=True)) if p == q}
    for dim in {p.dim for p in (*source, *target) if isinstance(p, Shard)}:
        old, new = cuts(source, dim), cuts(target, dim)
        same = 0
        while same < min(len(old), len(new)) and old[same] == new[same]:
            if source[old[same]] != target[old[same]]:
                break
            same += 1
        stay -= set(old[same:])
    return stay


def _leaving_order(source: tuple) -> list[int]:
    """Axes so that of those which cut one dimension, the last to cut comes first."""
    order: list[int] = []
    for dim in sorted({p.dim for p in source if isinstance(p, Shard)}):
        order += cuts(source, dim)[::-1]
    return order + [a for a in reversed(range(len(source))) if a not in order]


def _cutting_order(target: tuple) -> list[int]:
    order: list[int] = []
    for dim in sorted({p.dim for p in target if isinstance(p, Shard)}):
        order += cuts(target, dim)
    return [a for a in range(len(target)) if a not in order] + order


def _may_cut_now(axis: int, now: list, target: tuple) -> bool:
    """Whether the axes that cut the target's dimension before ``axis`` do, and no others."""
    want = target[axis]
    if isinstance(want, _StridedShard) or any(isinstance(p, _StridedShard) for p in now):
        return False
    order = cuts(target, want.dim)
    return cuts(tuple(now), want.dim) == order[: order.index(axis)]


def redistribute(array: Spread, placements: tuple) -> Any:
    """``array`` under other placements. Every rank of the mesh calls it."""
    if placements == array.placements:
        return array
    mesh = array.mesh
    place = mesh.get_coordinate()
    if place is None:
        return array.make(array.local, placements, array.shape)
    local = array.local
    steps = plan(array.placements, placements)
    if isinstance(local, NullArray):
        for step in steps:
            after = (*step.before[: step.axis], step.target, *step.before[step.axis + 1 :])
            shape = local_shape(array.shape, mesh.ranks.shape, place, after)
            local = NullArray(shape, local.dtype)
        return array.make(local, placements, array.shape)
    memory = memory_of(local)
    with memory.here():
        raw = memory.raw(local)
        for step in steps:
            raw = _perform(step, raw, array, place, memory)
    return array.make(memory.held(raw), placements, array.shape)


def _perform(
    step: Step, local: np.ndarray, array: Spread, place: tuple[int, ...], memory: Memory
) -> Any:
    """``local``: a raw array, in ``memory``."""
    have, want = step.source, step.target
    n = array.mesh.ranks.shape[step.axis]
    if n == 1:
        return local
    i = place[step.axis]
    if isinstance(have, Replicate):
        if isinstance(want, Shard):
            length, start = piece(local.shape[want.dim], n, i)
            return _contiguous(_part(local, want.dim, start, length))
        return _split_up(local, want, i)
    group = array.mesh.line(step.axis)
    if isinstance(have, Shard):
        whole = _size_before(step, array, place)
        if isinstance(want, Shard):
            return _shard_to_shard(group, local, have.dim, want.dim, whole, n, i, memory)
        return _gather(group, local, have.dim, whole, n, memory)
    if isinstance(want, Shard):
        return _reduce_to_shard(group, local, have, want.dim, n, i, memory)
    return _reduce(group, local, have)


def _size_before(step: Step, array: Spread, place: tuple[int, ...]) -> int:
    """How long the sharded dimension is without the cut of this step's axis."""
    without = (*step.before[: step.axis], Replicate(), *step.before[step.axis + 1 :])
    dim = step.source.dim  # type: ignore[attr-defined]
    return local_span(array.shape[dim], array.mesh.ranks.shape, place, without, dim)[0]


def _part(a: Any, dim: int, start: int, length: int) -> Any:
    return a[(*(slice(None),) * dim, slice(start, start + length))]


def _contiguous(a: Any) -> Any:
    return a.copy(order="C")


def _gather(
    group: ProcessGroup, local: np.ndarray, dim: int, whole: int, n: int, memory: Memory
) -> Any:
    local = local if local.flags.c_contiguous else _contiguous(local)
    shape = (*local.shape[:dim], whole, *local.shape[dim + 1 :])
    if math.prod(shape[:dim]) == 1:  # pieces lie one behind the other
        out = memory.empty(shape, local.dtype)
        outs = []
        for r in range(n):
            length, start = piece(whole, n, r)
            outs.append(_part(out, dim, start, length))
        group.all_gather(outs, local)
        return out
    outs = [
        memory.empty((*shape[:dim], piece(whole, n, r)[0], *shape[dim + 1 :]), local.dtype)
        for r in range(n)
    ]
    group.all_gather(outs, local)
    return np.concatenate(outs, dim)


def _shard_to_shard(
    group: ProcessGroup, local: Any, old: int, new: int, whole: int, n: int, i: int, memory: Memory
) -> Any:
    """From pieces of dimension ``old`` (``whole`` long) to pieces of ``new``, by one exchange."""
    ins = []
    for r in range(n):
        length, start = piece(local.shape[new], n, r)
        ins.append(_contiguous(_part(local, new, start, length)))
    mine = ins[i].shape[new]
    outs = []
    for r in range(n):
        shape = list(local.shape)
        shape[old], shape[new] = piece(whole, n, r)[0], mine
        outs.append(memory.empty(shape, local.dtype))
    group.all_to_all(outs, ins)
    return np.concatenate(outs, old)


OPS = {
    "sum": ReduceOp.SUM, "avg": ReduceOp.AVG, "product": ReduceOp.PRODUCT, "max": ReduceOp.MAX,
    "min": ReduceOp.MIN,
}  # fmt: skip


def _op(local: Any, have: Partial) -> Any:
    """The operator for ``have`` on numbers of this type; booleans go as small integers."""
    op = OPS[have.reduce_op]
    if have.reduce_op == "avg" and local.dtype.kind not in "fcV":
        raise PlacementError(
            f"Partial('avg') of {local.dtype}: an average needs a floating type; use Partial('sum')"
        )
    return op


def _reduce(group: ProcessGroup, local: Any, have: Any) -> Any:
    if local.dtype.kind == "b":
        return _reduce(group, local.astype(np.int32), have).astype(bool)
    out = _contiguous(local)
    group.all_reduce(out, _op(local, have))
    return out


def _reduce_to_shard(
    group: ProcessGroup, local: Any, have: Any, dim: int, n: int, i: int, memory: Memory
) -> Any:
    if local.dtype.kind == "b":
        wide = local.astype(np.int32)
        return _reduce_to_shard(group, wide, have, dim, n, i, memory).astype(bool)
    ins = []
    for r in range(n):
        length, start = piece(local.shape[dim], n, r)
        ins.append(_contiguous(_part(local, dim, start, length)))
    out = memory.empty(ins[i].shape, local.dtype)
    group.reduce_scatter(out, ins, _op(local, have))
    return out


def _split_up(local: object, want: Any, i: int) -> Any:
    """A whole as parts that make it: rank 0's is all, the others' change nothing."""
    if want.reduce_op in ("avg", "max", "min") or i == 0:
        return local
    return np.full_like(local, 1 if want.reduce_op == "product" else 0)
