"""A unit whose parameters a program has converted (``half()``, ``to(device)``) takes up their new
types and devices: its shards get new memory, its full weights and gradients follow."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backends.null import NullArray
from .shards.layout import plan_block
from .shards.members import Member
from .shards.params import local_array


def convert(unit: Any) -> None:
    """Make the weights of ``unit`` anew from what its shards are now. All ranks do it."""
    kinds: dict[np.dtype, list[Member]] = {}
    for m in unit.members:
        kinds.setdefault(local_array(m.sharded).dtype, []).append(m)
    unit.reshard()
    unit.weights = []
    unit.places = unit._places([local_array(m.sharded) for m in unit.members])
    for kind, members in kinds.items():
        shapes = [(m.name, m.layout.shape, m.layout.dim) for m in members]
        layout = plan_block(shapes, unit.sharding.world, kind.itemsize)
        used = unit.used_type(kind)
        for m, place in zip(members, layout.params, strict=True):
            m.layout, m.kind, m.sharded._layout = place, kind, place
            for node in (m.full._node, m.full._idle):
                if node is not None:
                    node.dtype = used
            if m.sharded._node is not None:
                unit._train(m)
        weights = unit.make_weights(members, layout, kind, used)
        rank = unit.sharding.rank
        weights.shards = [NullArray(m.layout.local_shape(rank), kind) for m in members]
        weights.refresh()
        unit.weights.append(weights)
    unit.forget_gradients()
    unit.name_it(unit.name, unit.index)
