"""Collectives as functions: nothing is written to, the result is a new tensor, and backward goes
through all of them. PyTorch's names and arguments (there, only some have derivatives).

A group is a ``ProcessGroup``, its name, a one-dimensional ``DeviceMesh``, a mesh with one of its
dimensions, a list of the global ranks of a group that exists, or None. Results are there when a
call returns. ``tag`` is accepted and not needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..comm.calls.reduce_ops import ReduceOp
from ..core.tensor import Tensor
from ..errors import ConfigError, ShapeError
from ..ops.functions import collectives as verbs
from ..ops.functions.collectives import How
from ..ops.functions.views.join import cat
from .groups.process_group import ProcessGroup
from .groups.state import existing_groups, group_or_default
from .mesh import DeviceMesh

_OPS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")


def _group(given: object) -> ProcessGroup:
    """The process group that was meant."""
    if given is None or isinstance(given, ProcessGroup):
        return group_or_default(given)
    if isinstance(given, DeviceMesh):
        return given.get_group()
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], DeviceMesh):
        return given[0].get_group(given[1])
    for each in existing_groups():
        if given == each.name or given == each.ranks:
            return each
    raise ConfigError(
        f"functional collective: group={given!r} was given; needed is a ProcessGroup, the name or "
        "the ranks of one that exists, a DeviceMesh of one dimension, or (mesh, dimension)"
    )


def _op(name: str | ReduceOp) -> ReduceOp:
    if isinstance(name, ReduceOp):
        return name
    if str(name).upper() not in _OPS:
        raise ConfigError(
            f"functional collective: reduceOp={name!r} was given; needed is one of "
            f"{', '.join(n.lower() for n in _OPS)}"
        )
    return getattr(ReduceOp, str(name).upper())


def wait_tensor(tensor: Tensor) -> Tensor:
    """``tensor``, which is there already."""
    return tensor


def broadcast(self: Tensor, src: int, group: object = None, tag: str = "") -> Tensor:
    """``self`` of rank ``src`` of the group."""
    return verbs.Broadcast.on(_group(group), How(root=src), self)


def all_reduce(self: Tensor, reduceOp: Any, group: object = None, tag: str = "") -> Tensor:  # noqa: N803
    """``self`` of all ranks, reduced."""
    return verbs.all_reduce(_group(group), self, _op(reduceOp))


def all_gather_tensor(self: Tensor, gather_dim: int, group: object = None, tag: str = "") -> Tensor:
    """``self`` of all ranks, one behind the other along ``gather_dim``."""
    g = _group(group)
    out = verbs.AllGatherSingle.on(g, How(), self)
    if gather_dim % max(self.array.ndim, 1) == 0:
        return out
    rows = self.shape[0]
    return cat([out[r * rows : (r + 1) * rows] for r in range(g.size)], gather_dim)


def reduce_scatter_tensor(
    self: Tensor,
    reduceOp: str,
    scatter_dim: int,
    group: object = None,
    tag: str = "",  # noqa: N803
) -> Tensor:
    """This rank's part, along ``scatter_dim``, of ``self`` of all ranks, reduced."""
    g, op = _group(group), _op(reduceOp)
    if self.shape[scatter_dim] % g.size:
        raise ShapeError(
            f"reduce_scatter_tensor: input dimension {scatter_dim} ({self.shape[scatter_dim]}) "
            f"must be a multiple of group_size {g.size}"
        )
    parts = self.chunk(g.size, dim=scatter_dim)
    return verbs.reduce_scatter(g, [part.contiguous() for part in parts], op)


def all_to_all_single(
    self: Tensor,
    output_split_sizes: Sequence[int] | None,
    input_split_sizes: Sequence[int] | None,
    group: object = None,
    tag: str = "",
) -> Tensor:
    """Rows of ``self`` to all ranks, and rows of all ranks: equal parts, or of the given sizes."""
    g, given = _group(group), tuple(self.shape)
    takes = None if output_split_sizes is None else list(output_split_sizes)
    gives = None if input_split_sizes is None else list(input_split_sizes)
    rows = given[0] if takes is None else sum(takes)
    how = How(shapes=((rows, *given[1:]), given), splits=(takes, gives))
    return verbs.AllToAllSingle.on(g, how, self)


def permute_tensor(
    self: Tensor, src_dst: Sequence[int], group: object = None, tag: str = ""
) -> Tensor:
    """What the rank r of the group with ``src_dst[r]`` equal to this rank has as ``self``."""
    g = _group(group)
    if sorted(src_dst) != list(range(g.size)):
        raise ConfigError(
            f"permute_tensor: src_dst={list(src_dst)} was given; needed is each of the ranks 0 to "
            f"{g.size - 1} of the group once"
        )
    rows = self.shape[0]
    gives, takes = [0] * g.size, [0] * g.size
    gives[src_dst[g.rank]] = takes[list(src_dst).index(g.rank)] = rows
    return all_to_all_single(self, takes, gives, g)


def all_reduce_coalesced(
    self: Sequence[Tensor],
    reduceOp: str,
    group: object = None,
    tag: str = "",  # noqa: N803
) -> list[Tensor]:
    """``all_reduce`` of each."""
    return [all_reduce(t, reduceOp, group) for t in self]


def all_gather_into_tensor_coalesced(
    self: Sequence[Tensor], group: object = None, tag: str = ""
) -> list[Tensor]:
    """``all_gather_tensor`` of each, along dimension 0."""
    return [all_gather_tensor(t, 0, group) for t in self]


def reduce_scatter_tensor_coalesced(
    inputs: Sequence[Tensor],
    reduceOp: str,  # noqa: N803
    scatter_dim: Sequence[int],
    group: object = None,
    tag: str = "",
) -> list[Tensor]:
    """``reduce_scatter_tensor`` of each."""
    pairs = zip(inputs, scatter_dim, strict=True)
    return [reduce_scatter_tensor(t, reduceOp, dim, group) for t, dim in pairs]


# Newer names, and those of forms that PyTorch keeps apart because others have no derivative.
all_gather_single = all_gather_single_autograd = all_gather_tensor_autograd = all_gather_tensor
reduce_scatter_single = reduce_scatter_single_autograd = reduce_scatter_tensor
reduce_scatter_tensor_autograd = reduce_scatter_tensor
all_to_all_single_autograd = all_to_all_single
all_gather_single_coalesced = all_gather_into_tensor_coalesced
reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
