"""Which placements an operation runs under: from what its arguments have, what it can do with
pieces (``ops.layouts``) and what moving costs. Pure: data in, data out.

Each mesh axis is decided by itself, from the first to the last. Candidates are: everything whole;
one name of dimensions cut; partial sums let through where the operation is linear in them. The cost
of a candidate is the bytes per rank that its arguments must move, and what is still to be moved
because a result is partial or whole; the first of the cheapest wins.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ...ops.layouts import Layout
from .placements import Partial, Placement, Replicate, Shard, _StridedShard

REPLICATE = Replicate()


class Choice(NamedTuple):
    """Placements per argument (None for what is no array) and per result, over all mesh axes, and
    the size of the names that are cut."""

    ins: tuple
    outs: tuple


class Given(NamedTuple):
    """What is known of an argument: its shape, bytes per element, placements."""

    shape: tuple
    itemsize: int
    placements: tuple


def choose(layout: Layout, given: tuple, mesh_shape: tuple) -> Choice:
    """The placements to run under. ``given``: a ``Given`` per argument, None for no array."""
    sizes = name_sizes(layout, given)
    ins: list = [None if g is None else [] for g in given]
    outs: list = [[] for _ in layout.outs]
    cut: dict[Any, int] = {}
    for axis, n in enumerate(mesh_shape):
        best = None
        for candidate in _candidates(layout, given, axis, n, sizes, cut):
            cost = _cost(candidate, layout, given, axis, n, sizes)
            if best is None or cost < best[0]:
                best = cost, candidate
        assert best is not None
        name, wants, gives = best[1]
        for have, want in zip(ins, wants, strict=True):
            if have is not None:
                have.append(want)
        for out, give in zip(outs, gives, strict=True):
            out.append(give)
        if name is not None:
            cut[name] = cut.get(name, 1) * n
    return Choice(
        tuple(None if i is None else tuple(i) for i in ins), tuple(tuple(o) for o in outs)
    )


def name_sizes(layout: Layout, given: tuple) -> dict:
    """The length of the dimensions of every name."""
    sizes = {}
    for names, g in zip(layout.ins, given, strict=True):
        if names is not None and g is not None:
            sizes.update({k: n for k, n in zip(names, g.shape, strict=True) if k is not None})
    return sizes


def _candidates(
    layout: Layout, given: tuple, axis: int, n: int, sizes: dict, cut: dict
) -> list[tuple]:
    """(name, what arguments need, what results have) for one axis."""
    whole = tuple(None if g is None else REPLICATE for g in given)
    found: list[tuple] = [(None, whole, (REPLICATE,) * len(layout.outs))]
    names: dict = {}
    for labels, g in zip(layout.ins, given, strict=True):
        p = None if g is None or labels is None else g.placements[axis]
        if isinstance(p, Shard) and labels[p.dim] is not None:
            names[labels[p.dim], getattr(p, "split_factor", None)] = None
    if any(g is not None and g.placements[axis].is_partial() for g in given):
        for labels in layout.outs:
            names.update(dict.fromkeys((k, None) for k in labels if k in sizes))
    for name, split in names:
        if _may_cut(layout, name, sizes[name], n * cut.get(name, 1)):
            found.append(_cut_by(layout, given, name, split))
    for together in layout.linear:
        ops = {
            given[i].placements[axis].reduce_op if given[i].placements[axis].is_partial() else None
            for i in together
            if i not in layout.once or given[i].placements[axis].is_partial()
        }
        if len(ops) == 1 and ops <= {"sum", "avg"}:
            part = Partial(ops.pop() or "sum")
            wants = tuple(
                None if g is None else part if i in together else REPLICATE
                for i, g in enumerate(given)
            )
            found.append((None, wants, (part,) * len(layout.outs)))
    return found


def _may_cut(layout: Layout, name: str, size: int, parts: int) -> bool:
    if layout.reduce is None and any(name not in labels for labels in layout.outs):
        return False
    if layout.even.get(name, 0) % parts:
        return False
    # Of nothing there is no maximum, average or such.
    summed = layout.reduce in (None, "sum") or all(name in labels for labels in layout.outs)
    return summed or not size % parts


def _cut_by(layout: Layout, given: tuple, name: str, split: int | None) -> tuple:
    def shard(labels: tuple) -> Placement:
        dim = labels.index(name)
        return Shard(dim) if split is None else _StridedShard(dim, split_factor=split)

    added = any(name not in labels for labels in layout.outs)

    def want(i: int, labels: tuple) -> Placement:
        if name in labels:
            return shard(labels)
        return Partial("sum") if added and i in layout.once else REPLICATE

    wants = tuple(
        None if g is None else want(i, labels)
        for i, (labels, g) in enumerate(zip(layout.ins, given, strict=True))
    )
    partial = Partial(layout.reduce) if layout.reduce else REPLICATE
    gives = tuple(shard(labels) if name in labels else partial for labels in layout.outs)
    return name, wants, gives


def _cost(candidate: tuple, layout: Layout, given: tuple, axis: int, n: int, sizes: dict) -> float:
    """Bytes per rank for this axis."""
    _, wants, gives = candidate
    total = 0.0
    itemsize = 4
    for g, want in zip(given, wants, strict=True):
        if g is not None:
            itemsize = g.itemsize
            nbytes = math.prod(g.shape) * g.itemsize + 1
            total += nbytes * moving(g.placements[axis], want, n)
    for labels, give in zip(layout.outs, gives, strict=True):
        nbytes = math.prod(sizes.get(k, 1) for k in labels) * itemsize + 1
        if give.is_partial():
            total += nbytes * 1.5 * (n - 1) / n
        elif give.is_replicate():
            total += nbytes * 0.01
    return total


def moving(have: Placement, want: Placement, n: int) -> float:
    """The part of a tensor's bytes that a rank moves to go from ``have`` to ``want`` along an axis
    of ``n`` ranks."""
    if have == want or n == 1:
        return 0.0
    share = (n - 1) / n
    if have.is_replicate():
        return 0.001 * share
    if want.is_replicate():
        return share * (2 if have.is_partial() else 1)
    if have.is_shard() and want.is_shard():
        return share / n + 0.001
    if want.is_partial():
        return 2 * share
    return share
