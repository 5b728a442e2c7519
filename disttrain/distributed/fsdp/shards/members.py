"""A parameter of a unit: where modules hold it, its shard and its full weight; and the groups that
a unit's shards are spread over. Data for the parts that move it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ....comm.group.group import ProcessGroup
from ...tensor import Placement, Replicate, Shard


@dataclass(eq=False)
class Member:
    """One parameter, known under all ``places`` (module, name) that share it."""

    name: str
    places: list[tuple[Any, str]]
    sharded: Any = None
    full: Any = None
    layout: Any = None  # a ShardLayout, once its unit has one
    dim: int = 0
    kind: Any = None  # the numpy type of the shard
    fqn: str = ""  # its name below the root
    spread: Any = None  # how it lies beside its unit, where it is a DTensor already: a DistArray

    _param_fqn = property(lambda self: self.fqn)  # as PyTorch's internals are called


@dataclass
class Sharding:
    """Shards are spread over ``group``; with ``replicas``, alike on each of its ranks."""

    group: ProcessGroup
    replicas: ProcessGroup | None
    mesh: Any

    def placements(self, dim: int) -> tuple[Placement, ...]:
        """How a parameter that is cut along ``dim`` lies on the mesh."""
        return (*(Replicate() for _ in range(self.mesh.ndim - 1)), Shard(dim))

    @property
    def world(self) -> int:
        return self.group.size

    @property
    def rank(self) -> int:
        return self.group.rank

    @property
    def total(self) -> int:
        """Ranks whose gradients are averaged."""
        return self.group.size * (1 if self.replicas is None else self.replicas.size)


@dataclass
class Choices:
    """What a unit was told to do; setters change it between steps."""

    reshard_after_forward: bool | int | None = None
    reshard_after_backward: bool = True
    sync: bool = True
    all_reduce: bool = True
    last_backward: bool = True
    divide_factor: float | None = None
    scales: Any = None  # factors of gradients in the backward that runs
    force_sum: bool = False
    unshard_in_backward: bool = True
    all_reduce_hook: Any = None
    folder: str | None = None  # where files hold the shards
    offload: Any = None  # the policy by which shards lie apart from where they are used
    gather_with: Any = None  # the program's own all-gather and reduce-scatter
    reduce_with: Any = None
    forward_prefetch: list[Any] = field(default_factory=list)
    backward_prefetch: list[Any] | None = None
