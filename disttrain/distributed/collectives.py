"""Collectives and messages on Tensors, under PyTorch's names. In place, outside the graph.

A thin layer: tensors to arrays, global ranks to ranks of the group, argument forms. The group
compares headers and moves the bytes (``comm.group``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..comm.group import ProcessGroup
from ..comm.reduce_ops import ReduceOp
from ..comm.work import Done, Work
from ..core.tensor import Tensor, note_read
from ..core.writes import touched
from ..errors import ConfigError, DeviceError
from . import objects
from .state import GroupMember, group_or_default


def _array(where: str, t: Any, written: bool = True) -> np.ndarray:
    if not isinstance(t, Tensor):
        raise TypeError(f"{where}: a Tensor is needed, {type(t).__name__} given")
    if t.is_meta:
        raise DeviceError(f"{where}: a tensor on the meta device has no data to communicate")
    note_read(t)
    if written:
        touched(t)
    return t.array


def _arrays(where: str, tensors: Sequence[Tensor], written: bool) -> list[np.ndarray]:
    if isinstance(tensors, Tensor) or not isinstance(tensors, (list, tuple)):
        raise TypeError(f"{where}: a list of tensors, one per rank, is needed")
    return [_array(where, t, written) for t in tensors]


def _outsider(group: Any) -> bool:
    return group is GroupMember.NON_GROUP_MEMBER


def _handed(work: Work | None, async_op: bool, *outputs: Any) -> Work | None:
    """What PyTorch returns: a Work when asked for one, else None."""
    if not async_op:
        return None
    work = Done() if work is None else work
    work.outputs = list(outputs)
    return work


def all_reduce(
    tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Reduce ``tensor`` over all ranks, in place, in one order (bitwise the same everywhere)."""
    if _outsider(group):
        return None
    g = group_or_default(group)
    work = g.all_reduce(_array("all_reduce", tensor), op, async_op=async_op)
    return _handed(work, async_op, tensor)


def reduce(
    tensor: Tensor, dst: int = 0, op: ReduceOp = ReduceOp.SUM, group: ProcessGroup | None = None,
    async_op: bool = False, group_dst: int | None = None,
) -> Work | None:  # fmt: skip
    """Reduce into ``tensor`` of rank ``dst``."""
    if _outsider(group):
        return None
    g = group_or_default(group)
    root = _root(g, dst, group_dst)
    array = _array("reduce", tensor, g.rank == root)
    return _handed(g.reduce(array, root, op, async_op=async_op), async_op, tensor)


def _root(g: ProcessGroup, global_rank: int | None, in_group: int | None) -> int:
    return (
        in_group
        if in_group is not None
        else g.group_rank(0 if global_rank is None else global_rank)
    )


def broadcast(
    tensor: Tensor, src: int = 0, group: ProcessGroup | None = None, async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:  # fmt: skip
    """Copy ``tensor`` of rank ``src`` to all ranks."""
    if _outsider(group):
        return None
    g = group_or_default(group)
    root = _root(g, src, group_src)
    array = _array("broadcast", tensor, g.rank != root)
    return _handed(g.broadcast(array, root, async_op=async_op), async_op, tensor)


def all_gather(
    tensor_list: list[Tensor], tensor: Tensor, group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:  # fmt: skip
    """``tensor_list[r]`` becomes rank r's ``tensor``."""
    if _outsider(group):
        return None
    g = group_or_default(group)
    outs = _arrays("all_gather", tensor_list, True)
    work = g.all_gather(outs, _array("all_gather", tensor, False), async_op=async_op)
    return _handed(work, async_op, *tensor_list)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:  # fmt: skip
    """``output_tensor`` becomes all ranks' ``input_tensor`` one behind the other."""
    if _outsider(group):
        return None
    g = group_or_default(group)
    out = _array("all_gather_into_tensor", output_tensor)
    given = _array("all_gather_into_tensor", input_tensor, False)
    work = g.all_gather_single(out, given, async_op=async_op)
    return _handed(work, async_op, output_tensor)


all_gather_single = all_gather_into_tensor


def reduce_scatter(
    output: Tensor, input_list: list[Tensor], op: ReduceOp = ReduceOp.SUM,
    group: ProcessGroup | None = None, async_op: bool = False,
) -> Work | None:  # fmt: skip
    """``output`` becomes the reduction of all ranks' ``input_list[rank]``."""
    if _outsider(group):
        return None
    g = group_or_default(group)
    ins = _arrays("reduce_scatter", input_list, False)
    work = g.reduce_scatter(_array("reduce_scatter", output), ins, op, async_op=async_op)
    return _handed(work, async_op, output)


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: ReduceOp = ReduceOp.SUM, group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:  # fmt: skip
    """``output`` becomes this rank's part of the reduced ``input``."""
    if _outsider(group):
        return None
    g = group_or_default(group)
    out = _array("reduce_scatter_tensor", output)
    given = _array("reduce_scatter_tensor", input, False)
    work = g.reduce_scatter_single(out, given, op, async_op=async_op)
    return _handed(work, async_op, output)


reduce_scatter_single = reduce_scatter_tensor


def all_to_all(
    output_tensor_list: list[Tensor], input_tensor_list: list[Tensor],
    group: ProcessGroup | None = None, async_op: bool = False,
) -> Work | None:  # fmt: skip
    """``output_tensor_list[r]`` becomes rank r's ``input_tensor_list[rank]``."""
    if _outsider(group):
        return None
    g = group_or_default(group)
    outs = _arrays("all_to_all", output_tensor_list, True)
    ins = _arrays("all_to_all", input_tensor_list, False)
    return _handed(g.all_to_all(outs, ins, async_op=async_op), async_op)


def all_to_all_single(
    output: Tensor, input: Tensor, output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None, group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Exchange pieces along dimension 0, of equal or of the given sizes."""
    if _outsider(group):
        return None
    g = group_or_default(group)
    work = g.all_to_all_single(
        _array("all_to_all_single", output), _array("all_to_all_single", input, False),
        output_split_sizes, input_split_sizes, async_op=async_op,
    )  # fmt: skip
    return _handed(work, async_op, output)


def gather(
    tensor: Tensor, gather_list: list[Tensor] | None = None, dst: int = 0,
    group: ProcessGroup | None = None, async_op: bool = False, group_dst: int | None = None,
) -> Work | None:  # fmt: skip
    """``gather_list[r]`` of rank ``dst`` becomes rank r's ``tensor``."""
    if _outsider(group):
        return None
    g = group_or_default(group)
    root = _root(g, dst, group_dst)
    if g.rank == root and gather_list is None:
        raise ConfigError("gather: gather_list is needed on the destination rank")
    outs = _arrays("gather", gather_list, True) if g.rank == root and gather_list else None
    work = g.gather(_array("gather", tensor, False), outs, root, async_op=async_op)
    return _handed(work, async_op, *(gather_list or ()))


def scatter(
    tensor: Tensor, scatter_list: list[Tensor] | None = None, src: int = 0,
    group: ProcessGroup | None = None, async_op: bool = False, group_src: int | None = None,
) -> Work | None:  # fmt: skip
    """``tensor`` becomes ``scatter_list[rank]`` of rank ``src``."""
    if _outsider(group):
        return None
    g = group_or_default(group)
    root = _root(g, src, group_src)
    if g.rank == root and scatter_list is None:
        raise ConfigError("scatter: scatter_list is needed on the source rank")
    ins = _arrays("scatter", scatter_list, False) if g.rank == root and scatter_list else None
    work = g.scatter(_array("scatter", tensor), ins, root, async_op=async_op)
    return _handed(work, async_op, tensor)


def barrier(
    group: ProcessGroup | None = None, async_op: bool = False, device_ids: Any = None
) -> Work | None:
    """Wait until every rank has come."""
    if _outsider(group):
        return None
    return _handed(group_or_default(group).barrier(async_op=async_op), async_op)


def monitored_barrier(
    group: ProcessGroup | None = None, timeout: Any = None, wait_all_ranks: bool = False
) -> None:
    """A barrier whose ``WaitTimeout`` names the ranks that did not come (the first one, with
    ``wait_all_ranks`` all of them). The group can be used afterwards."""
    if not _outsider(group):
        group_or_default(group).monitored_barrier(timeout, wait_all_ranks)


def all_reduce_coalesced(
    tensors: list[Tensor], op: ReduceOp = ReduceOp.SUM, group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:  # fmt: skip
    """``all_reduce`` of several tensors in one operation per type."""
    if _outsider(group):
        return None
    arrays = _arrays("all_reduce_coalesced", tensors, True)
    work = group_or_default(group).all_reduce_coalesced(arrays, op, async_op=async_op)
    return _handed(work, async_op, *tensors)


def all_gather_coalesced(
    output_tensor_lists: list[list[Tensor]], input_tensor_list: list[Tensor],
    group: ProcessGroup | None = None, async_op: bool = False,
) -> Work | None:  # fmt: skip
    """``output_tensor_lists[r][i]`` becomes rank r's ``input_tensor_list[i]``."""
    if _outsider(group):
        return None
    outs = [_arrays("all_gather_coalesced", row, True) for row in output_tensor_lists]
    arrays = _arrays("all_gather_coalesced", input_tensor_list, False)
    work = group_or_default(group).all_gather_coalesced(outs, arrays, async_op=async_op)
    return _handed(work, async_op)


# --- point to point ----------------------------------------------------------------------------


def send(
    tensor: Tensor, dst: int | None = None, group: ProcessGroup | None = None, tag: int = 0,
    group_dst: int | None = None,
) -> None:  # fmt: skip
    """Send to global rank ``dst``."""
    g = group_or_default(group)
    g.send(_array("send", tensor, False), _root(g, dst, group_dst), tag)


def recv(
    tensor: Tensor, src: int | None = None, group: ProcessGroup | None = None, tag: int = 0,
    group_src: int | None = None,
) -> int:  # fmt: skip
    """Receive from global rank ``src`` (None: from anyone); the source's global rank."""
    g = group_or_default(group)
    source = None if src is None and group_src is None else _root(g, src, group_src)
    return g.ranks[g.recv(_array("recv", tensor), source, tag)]


def isend(
    tensor: Tensor, dst: int | None = None, group: ProcessGroup | None = None, tag: int = 0,
    group_dst: int | None = None,
) -> Work:  # fmt: skip
    """Start to send."""
    g = group_or_default(group)
    return g.isend(_array("isend", tensor, False), _root(g, dst, group_dst), tag)


def irecv(
    tensor: Tensor, src: int | None = None, group: ProcessGroup | None = None, tag: int = 0,
    group_src: int | None = None,
) -> Work:  # fmt: skip
    """Start to receive."""
    g = group_or_default(group)
    source = None if src is None and group_src is None else _root(g, src, group_src)
    return g.irecv(_array("irecv", tensor), source, tag)


class P2POp:
    """One message of ``batch_isend_irecv``: ``op`` is ``isend`` or ``irecv``."""

    def __init__(
        self, op: Callable, tensor: Tensor, peer: int | None = None,
        group: ProcessGroup | None = None, tag: int = 0, group_peer: int | None = None,
    ) -> None:  # fmt: skip
        if op not in (isend, irecv):
            raise ConfigError("P2POp: op must be distributed.isend or distributed.irecv")
        self.op, self.tensor, self.group, self.tag = op, tensor, group, tag
        self.peer, self.group_peer = peer, group_peer


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Work]:
    """Start several messages."""
    return [p.op(p.tensor, p.peer, p.group, p.tag, p.group_peer) for p in p2p_op_list]


# --- objects -----------------------------------------------------------------------------------


def all_gather_object(object_list: list[Any], obj: Any, group: ProcessGroup | None = None) -> None:
    """``object_list[r]`` becomes rank r's ``obj`` (plain data: see ``objects``)."""
    if not _outsider(group):
        object_list[:] = objects.all_gather(group_or_default(group), obj)


def gather_object(
    obj: Any, object_gather_list: list[Any] | None = None, dst: int = 0,
    group: ProcessGroup | None = None,
) -> None:  # fmt: skip
    """As ``all_gather_object``, on rank ``dst`` only."""
    if _outsider(group):
        return
    g = group_or_default(group)
    everyone = objects.gather(g, obj, g.group_rank(dst))
    if everyone is not None and object_gather_list is not None:
        object_gather_list[:] = everyone


def broadcast_object_list(
    object_list: list[Any], src: int = 0, group: ProcessGroup | None = None, device: Any = None
) -> None:
    """Every rank's list becomes that of rank ``src``."""
    if not _outsider(group):
        g = group_or_default(group)
        object_list[:] = objects.broadcast(g, list(object_list), g.group_rank(src))


def scatter_object_list(
    scatter_object_output_list: list[Any], scatter_object_input_list: list[Any] | None = None,
    src: int = 0, group: ProcessGroup | None = None,
) -> None:  # fmt: skip
    """The first element of the output list becomes this rank's element of rank ``src``'s list."""
    if _outsider(group):
        return
    g = group_or_default(group)
    root = g.group_rank(src)
    scatter_object_output_list[0] = objects.scatter(g, scatter_object_input_list, root)


def send_object_list(
    object_list: list[Any], dst: int = 0, group: ProcessGroup | None = None, device: Any = None
) -> None:
    """Send plain data to rank ``dst``."""
    g = group_or_default(group)
    objects.send(g, list(object_list), g.group_rank(dst))


def recv_object_list(
    object_list: list[Any], src: int | None = None, group: ProcessGroup | None = None,
    device: Any = None,
) -> int:  # fmt: skip
    """Receive what ``send_object_list`` sent; the source's global rank."""
    g = group_or_default(group)
    object_list[:], source = objects.recv(g, None if src is None else g.group_rank(src))
    return g.ranks[source]
