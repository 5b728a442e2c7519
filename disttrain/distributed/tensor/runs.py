"""How one call of a primitive runs: its layout, placements, pieces and parameters, decided once.

A program makes the same calls over and over; what was decided for shapes, types, placements and
parameters is kept with the mesh and found again. Pure but for that memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...ops.layouts import Cut, Layout
from .choice import Choice, Given, choose
from .placements import Shard, local_span
from .spread import Spread

MOST = 4096  # decisions that a mesh keeps


class Run(NamedTuple):
    """``cuts``: this rank's piece per name that is cut; ``full``: shapes of whole results that
    parameters tell; ``params``: for the pieces; ``empty``: whether some piece is."""

    layout: Layout
    choice: Choice
    cuts: dict[Any, Cut]
    full: dict[int, tuple]
    params: dict
    empty: bool


def key_of(prim: Any, arrays: list, params: dict) -> Any:
    """What a decision depends on; None where that cannot be told quickly."""
    if prim.random:
        return None
    given = tuple(
        [(a.shape, a.dtype, a.placements) if isinstance(a, Spread) else a for a in arrays]
    )
    index = params.get("index")
    how: Any = repr(index) if index.__class__ is tuple else tuple(params.items())
    if index.__class__ is tuple and len(params) > 1:
        how = (how, params.get("shape"))
    try:
        hash((given, how))
    except TypeError:
        return None
    return prim.name, given, how


def decide(prim: Any, arrays: list, params: dict, mesh: Any, layout: Layout) -> Run:
    """Placements by ``choice``, and what follows from them for this rank."""
    given = tuple(
        Given(a.shape, a.itemsize, a.placements) if isinstance(a, Spread) else None for a in arrays
    )
    fixed = mesh.virtual_shards
    choice = choose(layout, given, (fixed,) if fixed else mesh.ranks.shape)
    place = mesh.get_coordinate()
    cuts: dict[Any, Cut] = {}
    full: dict[int, tuple] = {}
    if place is None:
        return Run(layout, choice, cuts, full, params, False)
    for a, labels, want in zip(arrays, layout.ins, choice.ins, strict=True):
        if isinstance(a, Spread):
            for d in {p.dim for p in want if isinstance(p, Shard)}:
                span = local_span(a.shape[d], mesh.ranks.shape, place, want, d)
                cuts[labels[d]] = Cut(*span, a.shape[d])
    local = params
    for key, i in layout.shapes.items() if cuts else ():
        full[i] = params[key]
        if -1 in full[i]:
            full[i] = prim.shape(*arrays, **params)[0]
        local = {**local, key: cut_shape(full[i], layout.outs[i], cuts)}
    empty = prim.shape is not None and not prim.elementwise
    empty = empty and not all(cut.length for cut in cuts.values())
    return Run(layout, choice, cuts, full, local, empty)


def cut_shape(shape: tuple, labels: tuple, cuts: dict[Any, Cut]) -> tuple:
    """The shape of this rank's piece of a result."""
    out = []
    for n, name in zip(shape, labels, strict=True):
        cut = cuts.get(name)
        out.append(n if cut is None or not cut.full else n * cut.length // cut.full)
    return tuple(out)
