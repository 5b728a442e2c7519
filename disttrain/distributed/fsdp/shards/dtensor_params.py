"""Parameters that are DTensors before they are sharded: tensor parallelism beside FSDP.

Such a parameter lies on one axis of a mesh already ("tp"); its unit cuts what this rank has of it
once more over another axis ("dp"). To programs the shard is a DTensor on both axes; inside forward
the full weight is the DTensor that it was. Knows placements and meshes, no unit.
"""

from __future__ import annotations

from typing import Any

from ....backends.null import NullArray
from ....errors import ConfigError
from ...tensor import DTensor, Placement, Shard, _StridedShard
from ...tensor.array import DistArray
from .members import Member, Sharding


def note_spread(member: Member) -> None:
    """Keep how ``member`` lies before it is sharded, where it is a DTensor."""
    if isinstance(member.sharded, DTensor):
        member.spread = member.sharded.array


def forget_values(member: Member) -> None:
    """How ``member`` lay is known, and its values are its shards': their memory is let go."""
    if (spread := member.spread) is not None:
        member.spread = spread.like(NullArray(spread.local.shape, spread.local.dtype))


def own_array(member: Member, array: DistArray) -> Any:
    """This rank's part of an array that lies as ``member`` did: what its unit cuts."""
    return array if member.spread is None else member.spread.as_gradient(array).local


def original_array(member: Member) -> Any:
    """What the unit cuts of ``member`` before it is sharded."""
    return member.sharded.array if member.spread is None else member.spread.local


def full_array(member: Member, local: object) -> Any:
    """The array of the full weight over ``local``, gathered (or a template)."""
    return local if member.spread is None else member.spread.like(local)


def shard_array(member: Member, sharding: Sharding, local: object) -> DistArray:
    """The array of the shard that is ``local``."""
    layout, spread = member.layout, member.spread
    if spread is None:
        return DistArray(local, sharding.mesh, sharding.placements(layout.dim), layout.shape)
    mesh, placements = _together(member, sharding)
    return DistArray(local, mesh, placements, spread.shape)


def _together(member: Member, sharding: Sharding) -> tuple[Any, tuple[Placement, ...]]:
    """The mesh of all axes on which ``member`` lies, and its placements there."""
    spread, mine = member.spread, sharding.mesh
    root = mine._get_root_mesh()
    names: tuple[str, ...] = root.mesh_dim_names or ()
    own: tuple[str, ...] = mine.mesh_dim_names or ()
    other: tuple[str, ...] = spread.mesh.mesh_dim_names or ()
    wanted = (*own, *other)
    if (
        spread.mesh._get_root_mesh() != root
        or len(set(wanted)) != mine.ndim + spread.mesh.ndim
        or not set(wanted) <= set(names)
    ):
        raise ConfigError(
            f"fully_shard: parameter {member.name!r} is a DTensor on {spread.mesh} and was to be "
            f"sharded over {mine}; needed are different named axes of one mesh: make "
            "init_device_mesh(..., (dp, tp), mesh_dim_names=('dp', 'tp')) and give mesh['tp'] to "
            "the one and mesh['dp'] to the other"
        )
    at = dict(zip(own, sharding.placements(member.layout.dim), strict=True))
    at |= dict(zip(other, spread.placements, strict=True))
    order = [n for n in names if n in at]
    shards = own[-1]
    inner = [n for n in other if _cuts(at[n], member.layout.dim)]
    later = [n for n in inner if order.index(n) > order.index(shards)]
    if later:  # the axes behind have cut before this one does
        factor = 1
        for n in later:
            factor *= root.size(names.index(n))
        at[shards] = _StridedShard(member.layout.dim, split_factor=factor)
    return root[tuple(order)], tuple(at[n] for n in order)


def _cuts(placement: Placement, dim: int) -> bool:
    return isinstance(placement, Shard) and placement.dim == dim
