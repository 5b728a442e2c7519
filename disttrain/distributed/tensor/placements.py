"""How a tensor lies on a mesh: one placement per mesh axis. Pure data; moves nothing.

Where several axes shard one dimension, the first of them cuts it first, the next cuts the pieces.
``Shard`` cuts as ``chunk`` does: pieces of ``ceil(n / parts)``, so that the last ones may be
shorter, or empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class Placement:
    """What every rank along one mesh axis holds of a tensor."""

    def is_shard(self, dim: int | None = None) -> bool:
        return isinstance(self, Shard) and (dim is None or self.dim == dim)

    def is_replicate(self) -> bool:
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        return isinstance(self, Partial) and (reduce_op is None or self.reduce_op == reduce_op)


@dataclass(frozen=True)
class Shard(Placement):
    """Rank i of the axis holds piece i of dimension ``dim``."""

    dim: int

    def __repr__(self) -> str:
        return f"Shard(dim={self.dim})"

    def __str__(self) -> str:
        return f"S({self.dim})"


@dataclass(frozen=True)
class _StridedShard(Shard):
    """A shard whose axis cuts *after* the axes right of it did, which cut into ``split_factor``
    pieces: what sharding a tensor-parallel parameter once more gives."""

    split_factor: int = 1

    def __repr__(self) -> str:
        return f"_StridedShard(dim={self.dim}, sf={self.split_factor})"

    def __str__(self) -> str:
        return f"_S({self.dim}, {self.split_factor})"


@dataclass(frozen=True)
class Replicate(Placement):
    """Every rank of the axis holds the whole."""

    def __repr__(self) -> str:
        return "Replicate()"

    def __str__(self) -> str:
        return "R"


REDUCTIONS = ("sum", "avg", "product", "max", "min")


@dataclass(frozen=True)
class Partial(Placement):
    """Every rank of the axis holds a part of equal shape; reduced over the axis they are it."""

    reduce_op: str = "sum"

    def __post_init__(self) -> None:
        if self.reduce_op not in REDUCTIONS:
            raise ValueError(
                f"Partial({self.reduce_op!r}): needed is one of {', '.join(REDUCTIONS)}"
            )

    def __repr__(self) -> str:
        return f"Partial({self.reduce_op})"

    def __str__(self) -> str:
        return f"P({self.reduce_op})"


def piece(size: int, parts: int, i: int) -> tuple[int, int]:
    """(length, start) of piece ``i`` of ``size`` elements in ``parts``."""
    step = -(-size // parts)
    start = min(i * step, size)
    return min(step, size - start), start


def cuts(placements: tuple, dim: int) -> list[int]:
    """The mesh axes that shard tensor dimension ``dim``, in the order in which they cut it."""
    order: list[int] = []
    for axis, p in enumerate(placements):
        if isinstance(p, Shard) and p.dim == dim:
            order.append(axis)
    late = [a for a in order if isinstance(placements[a], _StridedShard)]
    return [a for a in order if a not in late] + late[::-1]


def local_span(
    size: int, mesh_shape: tuple, place: tuple, placements: tuple, dim: int
) -> tuple[int, int]:
    """(length, start) of what the rank at ``place`` holds of a dimension of ``size``."""
    start = 0
    for axis in cuts(placements, dim):
        size, offset = piece(size, mesh_shape[axis], place[axis])
        start += offset
    return size, start


def local_shape(shape: tuple, mesh_shape: tuple, place: Any, placements: tuple) -> tuple:
    """The shape of what the rank at ``place`` holds of a tensor of ``shape``. Ranks outside of the
    mesh (``place`` None) hold nothing."""
    if place is None:
        return (0,)
    return tuple(local_span(n, mesh_shape, place, placements, d)[0] for d, n in enumerate(shape))


def local_offset(shape: tuple, mesh_shape: tuple, place: Any, placements: tuple) -> tuple:
    """Where that begins in the tensor."""
    return tuple(local_span(n, mesh_shape, place, placements, d)[1] for d, n in enumerate(shape))


def normalized(placements: Any, ndim: int, mesh_ndim: int, where: str) -> tuple:
    """``placements`` checked against a tensor of ``ndim`` dimensions (None: Replicate), negative
    dimensions counted from the end."""
    if placements is None:
        return (Replicate(),) * mesh_ndim
    placements = getattr(placements, "placements", placements)  # a NamedSharding
    out = []
    placements = (placements,) if isinstance(placements, Placement) else tuple(placements)
    if len(placements) != mesh_ndim:
        raise ValueError(
            f"{where}: `placements` must have the same length as `device_mesh.ndim`! "
            f"{len(placements)} placements {list(placements)} were given for {mesh_ndim} mesh "
            "dimensions; give one per mesh dimension"
        )
    for p in placements:
        if not isinstance(p, Placement):
            raise TypeError(
                f"{where}: placement {p!r}; Shard(dim), Replicate() or Partial() is needed"
            )
        if isinstance(p, Shard):
            if not -ndim <= p.dim < ndim:
                raise IndexError(f"{where}: {p!r} given for a tensor of {ndim} dimensions")
            if p.dim < 0:
                p = type(p)(**{**p.__dict__, "dim": p.dim + ndim})
        out.append(p)
    return tuple(out)
