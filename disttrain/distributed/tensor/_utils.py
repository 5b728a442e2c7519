"""What a rank holds of a sharded tensor, under PyTorch's names."""

from __future__ import annotations

from collections.abc import Sequence

from ..mesh import DeviceMesh
from .placements import Placement, local_offset, local_shape, normalized


def compute_local_shape_and_global_offset(
    global_shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Placement]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(shape of this rank's part, where it begins); two empty tuples outside of the mesh."""
    shape = tuple(global_shape)
    wanted = normalized(placements, len(shape), mesh.ndim, "compute_local_shape_and_global_offset")
    place = mesh.get_coordinate()
    if place is None:
        return (), ()
    grid = mesh.ranks.shape
    return local_shape(shape, grid, place, wanted), local_offset(shape, grid, place, wanted)
