"""Random numbers for distributed arrays: the same as one process would draw.

Every rank draws the numbers of the whole and keeps its part, from the stream of the mesh's first
rank: its state is sent before each draw. A rank whose own generator is at the same place (all ranks
called ``manual_seed`` alike) draws from it, so that it stays where one process's would be; the
generator of another rank is not touched.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.random import Generator
from ..mesh import DeviceMesh


def in_step(mesh: DeviceMesh, generator: Generator) -> Any:
    """The generator to draw from: ``generator``, or one at the place of the first rank's."""
    if mesh.get_coordinate() is None or mesh.size() == 1:
        return generator
    own = generator.get_state()
    state = own.array.copy()
    for axis, n in enumerate(mesh.ranks.shape):
        if n > 1:
            mesh.line(axis).broadcast(state, 0)
    if np.array_equal(state, own.array):
        return generator
    own.array[...] = state
    return Generator(generator.device).set_state(own)
