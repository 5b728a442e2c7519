"""Views of distributed arrays: what shares memory, and writes through what had to be copied.

To the program a view shares memory with what it is a view of. Where it could be made of local parts
alone, it does. Where data moved, it is a copy with an ``origin``: before it is used it is made
again if its origin was written to, and a write to it is written to its origin. Whether data moved
depends on shapes and placements, which are the same on all ranks, never on a rank's own memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...backends.device.memory import memory_of
from ...core.gate import Primitive
from .movement import redistribute
from .placements import Replicate
from .spread import Spread

REPLICATE = Replicate()


class Origin(NamedTuple):
    """``prim(source, **params)``, output number ``part`` of several; ``shared``: over the memory of
    ``source``, which is a copy itself."""

    source: Spread
    prim: Any
    params: dict
    part: int | None
    shared: bool


def note_view(
    out: Spread, source: Spread, prim: Primitive, params: dict, part: int | None, moved: bool
) -> None:
    """``out`` was made by the view ``prim`` of ``source``."""
    stand = source.stand_in()
    shared = not moved
    if prim.name == "reshape":
        try:
            seen = np.reshape(stand, out.shape, copy=False)
        except ValueError:  # other memory for the program, too
            _part_from(out, source)
            return
        shared = shared and stand.flags.c_contiguous
    else:
        seen = prim.forward(stand, **params)
        seen = seen if part is None else seen[part]
    out.steps = None if seen.flags.c_contiguous else seen.strides
    out.writes = source.writes
    if not shared:
        _part_from(out, source)
    if not shared or source.origin is not None:
        out.origin, out.seen = Origin(source, prim, params, part, shared), out.writes[0]


def _part_from(out: Spread, source: Spread) -> None:
    """Give ``out`` memory of its own."""
    local, given = out.local, source.local
    if isinstance(local, np.ndarray):
        if np.may_share_memory(local, given):
            out.local = local.copy()
    elif local.has_data and local.shares_with(given):
        out.local = local.copy("C")


def fresh(a: Spread) -> Spread:
    """``a``, made again if it is a copy of what was written to since."""
    if a.origin is not None and a.seen != a.writes[0]:
        source, prim, params, part, _ = a.origin
        out = prim.compute([fresh(source)], params)
        out = out if part is None else out[part]
        a.local = redistribute(out, a.placements).local
        a.seen = a.writes[0]
    return a


def wrote(a: Spread) -> None:
    """``a`` was written to: whatever it is a copy of gets the same."""
    a.writes[0] += 1
    if a.origin is None or not a.has_data or not a.size:
        return
    a.seen = a.writes[0]
    source, prim, params, part, shared = a.origin
    if shared:
        wrote(source)
        a.seen = a.writes[0]
        return
    source = fresh(source)
    step = (prim, params) if part is None else prim.part(params, part)
    whole = redistribute(source, without_cuts(source)).local.copy("C")
    region = step[0].compute([whole], step[1])
    value = redistribute(a, without_cuts(a)).local
    memory = memory_of(whole)
    with memory.here():
        if not _shares(region, whole):
            whole = memory.held(memory.raw(value).reshape(whole.shape))
        elif memory.on_host:
            region.flags.writeable = True
            region[...] = value
        else:
            np.copyto(memory.raw(region), memory.raw(value))
        back = source.make(whole, without_cuts(source), source.shape)
        back = redistribute(back, source.placements)
        if source.local.size:
            np.copyto(memory.raw(source.local), memory.raw(back.local))
    wrote(source)
    a.seen = a.writes[0]


def _shares(region: Any, whole: object) -> bool:
    if isinstance(region, np.ndarray):
        return np.may_share_memory(region, whole)
    return region.shares_with(whole)


def without_cuts(a: Spread) -> tuple:
    """Placements under which every rank has the whole."""
    return (REPLICATE,) * a.mesh.ndim
