"""Collectives and messages that backward goes through, under PyTorch's names.

Each gives new tensors (those that take an output write there, too, and give a tensor on the same
memory); its derivative is the adjoint collective, so every rank of the group must run backward
through it as it has run forward, also when its own part of the loss does not need the result.

A thin layer: default groups, global ranks and output tensors; ``ops.functions.collectives`` has
the operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...backends.device.memory import memory_of
from ...comm.calls.reduce_ops import ReduceOp
from ...core.backward.function import Function as Function  # PyTorch's module has it
from ...core.tensor import Tensor, wrap
from ...core.writes import touched
from ...errors import ConfigError, ShapeError
from ...ops.functions import collectives as verbs
from ...ops.functions.collectives import How
from ..groups.process_group import ProcessGroup
from ..groups.state import group as group  # this, too
from ..groups.state import group_or_default

Group = ProcessGroup | None


def all_reduce(tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: Group = None) -> Tensor:
    """``tensor`` reduced over all ranks. Minimum, maximum and product have their derivatives,
    too."""
    return verbs.all_reduce(group_or_default(group), _one("all_reduce", tensor), op)


def reduce(tensor: Tensor, dst: int, op: ReduceOp = ReduceOp.SUM, group: Group = None) -> Tensor:
    """``tensor`` reduced over all ranks, on rank ``dst``; the others get their own values, from
    which no gradient flows."""
    g = group_or_default(group)
    return verbs.reduce(g, _one("reduce", tensor), g.group_rank(dst), op)


def broadcast(tensor: Tensor, src: int, group: Group = None) -> Tensor:
    """``tensor`` of rank ``src``, on every rank; its gradient there is the sum of all ranks'."""
    g = group_or_default(group)
    return verbs.Broadcast.on(g, How(root=g.group_rank(src)), _one("broadcast", tensor))


def gather(tensor: Tensor, dst: int = 0, group: Group = None) -> tuple[Tensor, ...]:
    """Every rank's ``tensor``, on rank ``dst``; zeros elsewhere."""
    g = group_or_default(group)
    return verbs.Gather.on(g, How(root=g.group_rank(dst)), _one("gather", tensor))


def scatter(tensors: Sequence[Tensor], src: int = 0, group: Group = None) -> Tensor:
    """``tensors[rank]`` of rank ``src``. Every rank gives a list, whose tensors have the shape and
    type of the result; only those of ``src`` travel."""
    g = group_or_default(group)
    given = _list("scatter", "tensors", tensors, g)
    return verbs.Scatter.on(g, How(root=g.group_rank(src)), *given)


def reduce_scatter(
    output: Tensor, input_list: Sequence[Tensor], op: ReduceOp = ReduceOp.SUM, group: Group = None
) -> Tensor:
    """All ranks' ``input_list[rank]``, reduced."""
    g = group_or_default(group)
    given = _list("reduce_scatter", "input_list", input_list, g)
    return verbs.reduce_scatter(g, given, op, _into("reduce_scatter", output))


def all_gather(tensor: Tensor, group: Group = None) -> tuple[Tensor, ...]:
    """Every rank's ``tensor``."""
    return verbs.AllGather.on(group_or_default(group), How(), _one("all_gather", tensor))


def _all_gather_base(output_tensor: Tensor, input_tensor: Tensor, group: Group = None) -> Tensor:
    """All ranks' ``input_tensor`` one behind the other."""
    where = "_all_gather_base"
    into = [_into(where, output_tensor)]
    out = verbs.AllGatherSingle.on(
        group_or_default(group), How(into=into), _one(where, input_tensor)
    )
    return out


def all_to_all(
    output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: Group = None
) -> tuple[Tensor, ...]:
    """Every rank's ``input_tensor_list[rank]``. Tensors may differ in shape between ranks."""
    g = group_or_default(group)
    outs = _list("all_to_all", "output_tensor_list", output_tensor_list, g)
    ins = _list("all_to_all", "input_tensor_list", input_tensor_list, g)
    shapes = tuple(tuple(t.shape) for t in (*outs, *ins))
    into = [_into("all_to_all", t) for t in outs]
    return verbs.AllToAll.on(g, How(shapes=shapes, into=into), *ins)


def all_to_all_single(
    output: Tensor, input: Tensor, output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None, group: Group = None,
) -> Tensor:  # fmt: skip
    """Rows of ``input`` to all ranks, rows of all ranks into the result: equal parts along
    dimension 0, or parts of the given sizes."""
    where = "all_to_all_single"
    shapes = (tuple(_one(where, output).shape), tuple(_one(where, input).shape))
    splits = (output_split_sizes or None, input_split_sizes or None)
    how = How(shapes=shapes, splits=splits, into=[_into(where, output)])
    return verbs.AllToAllSingle.on(group_or_default(group), how, input)


# --- point to point ----------------------------------------------------------------------------


def send(tensor: Tensor, dst: int, group: Group = None, tag: int = 0) -> Tensor:
    """Send to rank ``dst``; a zero through which backward receives the gradient from there.

    Add it to the loss (or hand it to ``recv`` as ``after``), so that backward comes to it."""
    g = group_or_default(group)
    x = _one("send", tensor)
    how = How(root=g.group_rank(dst), tag=tag, shapes=(tuple(x.shape),))
    return verbs.Send.on(g, how, x)


def recv(
    tensor: Tensor, src: int, group: Group = None, tag: int = 0, after: Tensor | None = None
) -> Tensor:
    """What rank ``src`` sends, received into ``tensor``; backward sends the gradient back.

    ``after``: what ``send`` gave, when this message answers that one; backward then goes through
    both, the later one first."""
    g = group_or_default(group)
    into = _into("recv", tensor)
    how = How(root=g.group_rank(src), tag=tag, shapes=(into.shape,), into=[into])
    start = wrap(np.zeros((), into.dtype)) if after is None else after
    if tuple(start.shape) != ():
        raise ShapeError(
            f"recv: after of shape {list(start.shape)} was given; needed is what send returned"
        )
    if after is None and into.dtype.kind in "fcV":
        start.requires_grad_()
    return verbs.Recv.on(g, how, start)


# --- checks ------------------------------------------------------------------------------------


def _one(where: str, t: Tensor) -> Tensor:
    if not isinstance(t, Tensor):
        raise TypeError(f"distributed.nn.{where}: {type(t).__name__} was given; needed is a Tensor")
    return t


def _list(where: str, name: str, tensors: object, g: ProcessGroup) -> list[Tensor]:
    if not isinstance(tensors, (list, tuple)) or len(tensors) != g.size:
        given = f"{len(tensors)} tensors" if isinstance(tensors, (list, tuple)) else "no list"
        raise ConfigError(
            f"distributed.nn.{where}: {name} with {given} was given; needed is a list of {g.size} "
            "tensors, one per rank of the group, on every rank"
        )
    return [_one(where, t) for t in tensors]


def _into(where: str, t: Tensor) -> Any:
    """The memory of an output tensor, a raw array, whose old values are gone."""
    touched(_one(where, t))
    return memory_of(t.array).raw(t.array)
