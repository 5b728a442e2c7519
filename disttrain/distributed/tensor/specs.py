"""JAX's spelling of placements: per tensor dimension the mesh axes that cut it.

    NamedSharding(mesh, PartitionSpec("dp", None))        placements [Shard(0), Replicate()]
    NamedSharding(mesh, PartitionSpec(("dp", "tp")))      placements [Shard(0), Shard(0)]

Two ways to write the same: ``placements`` leads from here to there, ``spec_of`` back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...errors import PlacementError
from ..mesh import DeviceMesh
from .placements import Placement, Replicate, Shard, cuts


class PartitionSpec(tuple):
    """Per tensor dimension: the name of a mesh axis, a tuple of names (the first cuts first), or
    None. Dimensions that are not mentioned are whole."""

    __slots__ = ()

    def __new__(cls, *dims: str | tuple | None) -> PartitionSpec:
        return super().__new__(cls, dims)

    def __repr__(self) -> str:
        return f"PartitionSpec({', '.join(map(repr, self))})"


P = PartitionSpec


@dataclass(frozen=True)
class NamedSharding:
    """A mesh and how a tensor lies on it."""

    mesh: DeviceMesh
    spec: PartitionSpec

    @property
    def placements(self) -> tuple[Placement, ...]:
        """One placement per mesh axis, as everything else here takes them."""
        mesh = self.mesh
        found: list[Placement] = [Replicate()] * mesh.ndim
        for dim, names in enumerate(self.spec):
            axes = [mesh.axis(name) for name in _names(names)]
            if axes != sorted(axes):
                raise PlacementError(
                    f"{self.spec}: dimension {dim} is cut by {names}; the axes of one dimension "
                    f"are needed in the order of the mesh, {mesh.mesh_dim_names}: make the mesh in "
                    "the order in which you want to cut"
                )
            for axis in axes:
                if not found[axis].is_replicate():
                    raise PlacementError(
                        f"{self.spec}: the mesh axis {mesh.axis_names[axis]!r} is named twice; it "
                        "can cut one dimension only"
                    )
                found[axis] = Shard(dim)
        return tuple(found)


def _names(names: str | tuple | None) -> tuple:
    if names is None:
        return ()
    return (names,) if isinstance(names, (str, int)) else tuple(names)


def spec_of(t: Any) -> PartitionSpec:
    """How a DTensor lies, in JAX's words. Partial ones have no such word."""
    mesh, placements = t.device_mesh, t.placements
    if any(p.is_partial() for p in placements):
        raise PlacementError(
            f"spec_of: a DTensor with {placements} is given; partial tensors have no "
            "PartitionSpec: redistribute() it first"
        )
    dims: list[Any] = []
    for dim in range(t.ndim):
        named = tuple(mesh.axis_names[axis] for axis in cuts(placements, dim))
        dims.append(None if not named else named[0] if len(named) == 1 else named)
    while dims and dims[-1] is None:
        dims.pop()
    return PartitionSpec(*dims)
