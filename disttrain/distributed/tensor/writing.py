"""Primitives that write, on distributed arrays: in-place operations, optimizers' steps.

What is written to keeps its placements; everything else comes to where that lies. Where a rule
wants dimensions whole (a step that looks at rows and columns), copies are written to and the parts
go back.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...backends.device.memory import memory_of
from ...core.gate import Primitive
from ...errors import PlacementError
from ...ops.layouts import Layout, aligned, layout_of
from .movement import redistribute
from .placements import Partial, Placement, Replicate, Shard
from .spread import Spread
from .viewing import wrote

REPLICATE = Replicate()


def run_write(prim: Primitive, arrays: list, params: dict) -> Any:
    """Run ``prim``, which writes to ``arrays[i]`` for its ``mutates``."""
    first = prim.mutates[0]
    target = arrays[first]
    if not isinstance(target, Spread):
        raise PlacementError(
            f"{prim.name}: a DTensor is written into a plain Tensor; take the DTensor's "
            ".full_tensor() or .to_local() first"
        )
    ins = _names(prim, arrays, params, target)
    moved: dict[int, Any] = {}  # what is given twice is written to once
    for a, names in zip(arrays, ins, strict=True):
        if isinstance(a, Spread) and id(a) not in moved:
            moved[id(a)] = redistribute(a, _wanted(target, ins[first], names))
    there = [moved.get(id(a), a) for a in arrays]
    if target.mesh.get_coordinate() is not None:
        pieces = [a.local if isinstance(a, Spread) else _once(a, target) for a in there]
        prim.compute(pieces, params)
        written = {id(arrays[i]): i for i in prim.mutates if isinstance(arrays[i], Spread)}
        for i in written.values():
            _put_back(arrays[i], there[i])
    return tuple(arrays[i] for i in prim.mutates) if prim.multi else target


def _put_back(a: Spread, there: Spread) -> None:
    if there is not a and a.has_data:
        memory = memory_of(a)
        back = memory.raw(redistribute(there, a.placements).local)
        with memory.here():
            np.copyto(memory.raw(a.local), back)
    wrote(a)


def _names(prim: Primitive, arrays: list, params: dict, target: Spread) -> tuple:
    """The names of the dimensions of all arguments: the primitive's own, or those of elements that
    lie upon one another."""
    layout = layout_of(prim, arrays, params)
    if isinstance(layout, Layout):
        return layout.ins
    return aligned(arrays, target.ndim)[0]


def _wanted(target: Spread, own: tuple, names: tuple) -> tuple:
    """Placements for an argument with ``names``, beside a target with the names ``own``."""

    def want(p: Placement) -> Placement:
        if not isinstance(p, Shard):
            return p
        name = own[p.dim]
        return (
            replace(p, dim=names.index(name)) if name in names and name is not None else (REPLICATE)
        )

    return tuple(want(p) for p in target.placements)


def _once(value: object, target: Spread) -> Any:
    """A number that is written to partial sums: once, and nothing on the other ranks."""
    place = target.mesh.get_coordinate()
    for p, i in zip(target.placements, place or (), strict=False):
        if isinstance(p, Partial) and p.reduce_op == "sum" and i:
            return 0
    return value
