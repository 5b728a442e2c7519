"""Collectives and messages on Tensors, under PyTorch's names. In place, outside the graph.

A thin layer: tensors to arrays, global ranks to ranks of the group, argument forms. The group
compares headers and moves the bytes (``comm.group``).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from ...comm.calls.reduce_ops import ReduceOp
from ...comm.calls.work import Work
from ...comm.group.device_setup import together
from ...core.annotations import DeviceLike
from ...core.effects import done_each_by
from ...core.tensor import Tensor
from ...errors import ConfigError
from ...futures import Future
from ..groups.arrays import array_of, arrays_of, handed, promised, seconds_of
from ..groups.process_group import ProcessGroup
from ..groups.state import group_or_default
from . import objects
from .membership import done, outsider, root_in

__outward__ = ()  # those that wait are effects; what others use of groups is watched


def _kept(g: ProcessGroup, work: Work | None, async_op: bool, output: Tensor) -> Work | None:
    """A work that ``_coalescing_manager`` waits for."""
    found = handed(work, True, output)
    assert found is not None and g.coalescing is not None
    g.coalescing.append(found)
    return found if async_op else None


def supports_complex(reduceOp: ReduceOp) -> bool:  # noqa: N803
    """Whether complex numbers can be reduced so, as PyTorch says it."""
    return reduceOp.name in ("SUM", "AVG", "PREMUL_SUM")


def _all_reduce_each(tensors: list[Tensor], op: ReduceOp, group: ProcessGroup | None) -> None:
    """``all_reduce`` of each, in this order."""
    arrays = [array_of("all_reduce", t) for t in tensors]
    group_or_default(group).all_reduce_each(arrays, op)


@done_each_by(_all_reduce_each)
def all_reduce(
    tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Reduce ``tensor`` over all ranks, in place, in one order (bitwise the same everywhere)."""
    if done(all_reduce, async_op, group, tensor, op):
        return None
    g = group_or_default(group)
    together = g.coalescing is not None
    work = g.all_reduce(array_of("all_reduce", tensor), op, async_op=async_op or together)
    return _kept(g, work, async_op, tensor) if together else handed(work, async_op, tensor)


def reduce(
    tensor: Tensor, dst: int | None = None, op: ReduceOp = ReduceOp.SUM,
    group: ProcessGroup | None = None, async_op: bool = False, group_dst: int | None = None,
) -> Work | None:  # fmt: skip
    """Reduce into ``tensor`` of rank ``dst``."""
    if done(reduce, async_op, group, tensor, dst, op, group_dst=group_dst):
        return None
    g = group_or_default(group)
    root = root_in(g, "dst", dst, group_dst)
    array = array_of("reduce", tensor, g.rank == root)
    return handed(g.reduce(array, root, op, async_op=async_op), async_op, tensor)


def broadcast(
    tensor: Tensor, src: int | None = None, group: ProcessGroup | None = None,
    async_op: bool = False, group_src: int | None = None,
) -> Work | None:  # fmt: skip
    """Copy ``tensor`` of rank ``src`` to all ranks."""
    if done(broadcast, async_op, group, tensor, src, group_src=group_src):
        return None
    g = group_or_default(group)
    root = root_in(g, "src", src, group_src)
    array = array_of("broadcast", tensor, g.rank != root)
    return handed(g.broadcast(array, root, async_op=async_op), async_op, tensor)


def all_gather(
    tensor_list: list[Tensor], tensor: Tensor, group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:  # fmt: skip
    """``tensor_list[r]`` becomes rank r's ``tensor``."""
    if done(all_gather, async_op, group, tensor_list, tensor):
        return None
    g = group_or_default(group)
    outs = arrays_of("all_gather", tensor_list, True)
    work = g.all_gather(outs, array_of("all_gather", tensor, False), async_op=async_op)
    return handed(work, async_op, *tensor_list)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:  # fmt: skip
    """``output_tensor`` becomes all ranks' ``input_tensor`` one behind the other."""
    if done(all_gather_into_tensor, async_op, group, output_tensor, input_tensor):
        return None
    g = group_or_default(group)
    out = array_of("all_gather_into_tensor", output_tensor)
    given = array_of("all_gather_into_tensor", input_tensor, False)
    together = g.coalescing is not None
    work = g.all_gather_single(out, given, async_op=async_op or together)
    if together:
        return _kept(g, work, async_op, output_tensor)
    return handed(work, async_op, output_tensor)


all_gather_single = _all_gather_base = all_gather_into_tensor


def reduce_scatter(
    output: Tensor, input_list: list[Tensor], op: ReduceOp = ReduceOp.SUM,
    group: ProcessGroup | None = None, async_op: bool = False,
) -> Work | None:  # fmt: skip
    """``output`` becomes the reduction of all ranks' ``input_list[rank]``."""
    if done(reduce_scatter, async_op, group, output, input_list, op):
        return None
    g = group_or_default(group)
    ins = arrays_of("reduce_scatter", input_list, False)
    work = g.reduce_scatter(array_of("reduce_scatter", output), ins, op, async_op=async_op)
    return handed(work, async_op, output)


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: ReduceOp = ReduceOp.SUM, group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:  # fmt: skip
    """``output`` becomes this rank's part of the reduced ``input``."""
    if done(reduce_scatter_tensor, async_op, group, output, input, op):
        return None
    g = group_or_default(group)
    out = array_of("reduce_scatter_tensor", output)
    given = array_of("reduce_scatter_tensor", input, False)
    together = g.coalescing is not None
    work = g.reduce_scatter_single(out, given, op, async_op=async_op or together)
    return _kept(g, work, async_op, output) if together else handed(work, async_op, output)


reduce_scatter_single = _reduce_scatter_base = reduce_scatter_tensor


def all_to_all(
    output_tensor_list: list[Tensor], input_tensor_list: list[Tensor],
    group: ProcessGroup | None = None, async_op: bool = False,
) -> Work | None:  # fmt: skip
    """``output_tensor_list[r]`` becomes rank r's ``input_tensor_list[rank]``."""
    if done(all_to_all, async_op, group, output_tensor_list, input_tensor_list):
        return None
    g = group_or_default(group)
    outs = arrays_of("all_to_all", output_tensor_list, True)
    ins = arrays_of("all_to_all", input_tensor_list, False)
    return handed(g.all_to_all(outs, ins, async_op=async_op), async_op)


def all_to_all_single(
    output: Tensor, input: Tensor, output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None, group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Exchange pieces along dimension 0, of equal or of the given sizes."""
    splits = output_split_sizes, input_split_sizes
    if done(all_to_all_single, async_op, group, output, input, *splits):
        return None
    g = group_or_default(group)
    work = g.all_to_all_single(
        array_of("all_to_all_single", output), array_of("all_to_all_single", input, False),
        *splits, async_op=async_op,
    )  # fmt: skip
    return handed(work, async_op, output)


def gather(
    tensor: Tensor, gather_list: list[Tensor] | None = None, dst: int | None = None,
    group: ProcessGroup | None = None, async_op: bool = False, group_dst: int | None = None,
) -> Work | None:  # fmt: skip
    """``gather_list[r]`` of rank ``dst`` becomes rank r's ``tensor``."""
    if outsider("gather", group):
        return None
    g = group_or_default(group)
    root = root_in(g, "dst", dst, group_dst, 0)
    if g.rank == root and gather_list is None:
        raise ConfigError("gather: gather_list is needed on the destination rank")
    outs = arrays_of("gather", gather_list, True) if g.rank == root and gather_list else None
    work = g.gather(array_of("gather", tensor, False), outs, root, async_op=async_op)
    return handed(work, async_op, *(gather_list or ()))


def scatter(
    tensor: Tensor, scatter_list: list[Tensor] | None = None, src: int | None = None,
    group: ProcessGroup | None = None, async_op: bool = False, group_src: int | None = None,
) -> Work | None:  # fmt: skip
    """``tensor`` becomes ``scatter_list[rank]`` of rank ``src``."""
    if outsider("scatter", group):
        return None
    g = group_or_default(group)
    root = root_in(g, "src", src, group_src, 0)
    if g.rank == root and scatter_list is None:
        raise ConfigError("scatter: scatter_list is needed on the source rank")
    ins = arrays_of("scatter", scatter_list, False) if g.rank == root and scatter_list else None
    work = g.scatter(array_of("scatter", tensor), ins, root, async_op=async_op)
    return handed(work, async_op, tensor)


def barrier(
    group: ProcessGroup | None = None, async_op: bool = False, device_ids: object = None,
    timeout: timedelta | float | None = None,
) -> Work | None:  # fmt: skip
    """Wait until every rank has come, at most ``timeout`` (None: the group's)."""
    if outsider("barrier", group):
        return None
    g = group_or_default(group)
    if timeout is None:
        return handed(g.barrier(async_op=async_op), async_op)
    limit = timedelta(seconds=seconds_of("barrier", timeout) or 0)
    return handed(g.barrier(timeout=limit, async_op=async_op), async_op)


def monitored_barrier(
    group: ProcessGroup | None = None, timeout: timedelta | float | None = None,
    wait_all_ranks: bool = False,
) -> None:  # fmt: skip
    """A barrier whose ``WaitTimeout`` names the ranks that did not come (the first one, with
    ``wait_all_ranks`` all of them). The group can be used afterwards."""
    if not outsider("monitored_barrier", group):
        group_or_default(group).monitored_barrier(timeout, wait_all_ranks)


def all_reduce_coalesced(
    tensors: list[Tensor], op: ReduceOp = ReduceOp.SUM, group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Future | None:  # fmt: skip
    """``all_reduce`` of several tensors in one operation per type. ``async_op``: gives a future."""
    if outsider("all_reduce_coalesced", group):
        return None
    arrays = arrays_of("all_reduce_coalesced", tensors, True)
    work = group_or_default(group).all_reduce_coalesced(arrays, op, async_op=async_op)
    return promised(work, async_op, *tensors)


def all_gather_coalesced(
    output_tensor_lists: list[list[Tensor]], input_tensor_list: list[Tensor],
    group: ProcessGroup | None = None, async_op: bool = False,
) -> Future | None:  # fmt: skip
    """``output_tensor_lists[r][i]`` becomes rank r's ``input_tensor_list[i]``; else as above."""
    if outsider("all_gather_coalesced", group):
        return None
    outs = [arrays_of("all_gather_coalesced", row, True) for row in output_tensor_lists]
    arrays = arrays_of("all_gather_coalesced", input_tensor_list, False)
    work = group_or_default(group).all_gather_coalesced(outs, arrays, async_op=async_op)
    return promised(work, async_op)


# --- point to point ----------------------------------------------------------------------------


def _other(g: ProcessGroup, rank: int | None, what: str) -> None:
    """A message that one waits for comes from, or goes to, another rank."""
    if rank == g.rank:
        raise ConfigError(
            f"Invalid {what} rank: {what} rank should not be the same as the rank of the current "
            "process. Use isend and irecv for a message to oneself"
        )


def send(
    tensor: Tensor, dst: int | None = None, group: ProcessGroup | None = None, tag: int = 0,
    group_dst: int | None = None,
) -> None:  # fmt: skip
    """Send to global rank ``dst``."""
    if outsider("send", group):
        return
    g = group_or_default(group)
    to = root_in(g, "dst", dst, group_dst)
    _other(g, to, "destination")
    g.send(array_of("send", tensor, False), to, tag)


def recv(
    tensor: Tensor, src: int | None = None, group: ProcessGroup | None = None, tag: int = 0,
    group_src: int | None = None,
) -> int:  # fmt: skip
    """Receive from global rank ``src`` (None: from anyone); the source's global rank."""
    if outsider("recv", group):
        return -1
    g = group_or_default(group)
    source = None if src is None and group_src is None else root_in(g, "src", src, group_src)
    return g.ranks[g.recv(array_of("recv", tensor), source, tag)]


def isend(
    tensor: Tensor, dst: int | None = None, group: ProcessGroup | None = None, tag: int = 0,
    group_dst: int | None = None,
) -> Work | None:  # fmt: skip
    """Start to send."""
    if outsider("isend", group):
        return None
    g = group_or_default(group)
    to = root_in(g, "dst", dst, group_dst)
    return handed(g.isend(array_of("isend", tensor, False), to, tag), True, tensor)


def irecv(
    tensor: Tensor, src: int | None = None, group: ProcessGroup | None = None, tag: int = 0,
    group_src: int | None = None,
) -> Work | None:  # fmt: skip
    """Start to receive."""
    if outsider("irecv", group):
        return None
    g = group_or_default(group)
    source = None if src is None and group_src is None else root_in(g, "src", src, group_src)
    return handed(g.irecv(array_of("irecv", tensor), source, tag), True, tensor)


class P2POp:
    """One message of ``batch_isend_irecv``: ``op`` is ``isend`` or ``irecv``. ``peer``: the other
    rank in the world; ``group_peer``: in the group."""

    def __init__(
        self, op: Callable, tensor: Tensor, peer: int | None = None,
        group: ProcessGroup | None = None, tag: int = 0, group_peer: int | None = None,
    ) -> None:  # fmt: skip
        if op not in (isend, irecv):
            raise ConfigError("Invalid ``op``: P2POp needs distributed.isend or distributed.irecv")
        array_of("P2POp", tensor, False)
        self.op, self.tensor, self.tag = op, tensor, tag
        self.group = group_or_default(group)
        self.group_peer = root_in(self.group, "peer", peer, group_peer)
        self.peer = peer if group_peer is None else self.group.ranks[group_peer]

    def __repr__(self) -> str:
        ends = [int(self.group.rank), self.group_peer]
        source, to = ends if self.op is isend else ends[::-1]
        return (
            f"P2POp({self.op.__name__} pg={self.group.name}, group_src={source}, group_dst={to},  "
            f"{self.tensor.shape}, {self.tensor.dtype})"
        )


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Work]:
    """Start several messages of one group."""
    if not isinstance(p2p_op_list, list) or not all(isinstance(p, P2POp) for p in p2p_op_list):
        raise ConfigError("Invalid ``p2p_op_list``: batch_isend_irecv needs a list of P2POp")
    if any(p.group is not p2p_op_list[0].group for p in p2p_op_list):
        raise ConfigError("batch_isend_irecv: All ops need to use the same group.")
    works: list[Work] = []
    if not p2p_op_list:
        return works
    first = p2p_op_list[0]
    with together(first.group, array_of("batch_isend_irecv", first.tensor, False)):
        for p in p2p_op_list:
            end = {"group_dst" if p.op is isend else "group_src": p.group_peer}
            works.append(p.op(p.tensor, group=p.group, tag=p.tag, **end))
    return works


# --- objects -----------------------------------------------------------------------------------


def all_gather_object(object_list: list, obj: object, group: ProcessGroup | None = None) -> None:
    """``object_list[r]`` becomes rank r's ``obj`` (plain data: see ``plain``)."""
    if not outsider("all_gather_object", group):
        g = group_or_default(group)
        if len(object_list) < g.size:
            raise ConfigError(
                f"all_gather_object: object_list with {len(object_list)} places was given; needed "
                f"are {g.size}, one per rank of the group"
            )
        object_list[: g.size] = objects.all_gather(g, obj)


def gather_object(
    obj: object, object_gather_list: list[Any] | None = None, dst: int | None = None,
    group: ProcessGroup | None = None, group_dst: int | None = None,
) -> None:  # fmt: skip
    """As ``all_gather_object``, on rank ``dst`` (None: 0) only."""
    if outsider("gather_object", group):
        return
    g = group_or_default(group)
    root = root_in(g, "dst", dst, group_dst, 0)
    if g.rank == root and object_gather_list is None:
        raise ConfigError(
            "Argument ``gather_list`` must be specified on destination rank: gather_object needs "
            "object_gather_list= there"
        )
    if g.rank != root and object_gather_list:
        raise ConfigError(
            "Argument ``gather_list`` must NOT be specified on non-destination ranks: "
            "gather_object was given object_gather_list= there"
        )
    everyone = objects.gather(g, obj, root)
    if everyone is not None and object_gather_list is not None:
        object_gather_list[: g.size] = everyone


def broadcast_object_list(
    object_list: list[Any], src: int | None = None, group: ProcessGroup | None = None,
    device: DeviceLike | None = None, group_src: int | None = None,
) -> None:  # fmt: skip
    """Every rank's list becomes that of rank ``src`` (None: 0)."""
    if not outsider("broadcast_object_list", group):
        g = group_or_default(group)
        root = root_in(g, "src", src, group_src, 0)
        mine = list(object_list)
        found = objects.broadcast(g, mine, root, default=mine)
        if g.rank != root:
            _fill("broadcast_object_list", object_list, found)


def _fill(where: str, given: list[Any], found: list[Any]) -> None:
    if len(given) != len(found):
        raise ConfigError(
            f"{where}: object_list with {len(given)} places was given; {len(found)} objects were "
            "sent. Give lists of one length on all ranks"
        )
    given[:] = found


def scatter_object_list(
    scatter_object_output_list: list[Any], scatter_object_input_list: list[Any] | None = None,
    src: int | None = None, group: ProcessGroup | None = None, group_src: int | None = None,
) -> None:  # fmt: skip
    """The first element of the output list becomes this rank's element of the list of rank
    ``src`` (None: 0)."""
    if outsider("scatter_object_list", group):
        return
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise ConfigError(
            "Expected argument scatter_object_output_list to be a list of size at least 1."
        )
    g = group_or_default(group)
    root = root_in(g, "src", src, group_src, 0)
    given = scatter_object_input_list
    if g.rank == root and (given is None or len(given) != g.size):
        raise ConfigError(
            "source rank must provide non-None scatter_object_input_list, with one object for "
            f"each of the {g.size} ranks; {'None' if given is None else len(given)} given"
        )
    outs = scatter_object_output_list
    outs[0] = objects.scatter(g, given, root, default=outs[0])


def send_object_list(
    object_list: list[Any], dst: int | None = None, group: ProcessGroup | None = None,
    device: DeviceLike | None = None, group_dst: int | None = None, use_batch: bool = False,
) -> None:  # fmt: skip
    """Send plain data to rank ``dst``. ``use_batch`` chooses between two ways that PyTorch has."""
    if outsider("send_object_list", group):
        return
    g = group_or_default(group)
    to = root_in(g, "dst", dst, group_dst)
    _other(g, to, "destination")
    objects.send(g, list(object_list), to)


def recv_object_list(
    object_list: list[Any], src: int | None = None, group: ProcessGroup | None = None,
    device: DeviceLike | None = None, group_src: int | None = None, use_batch: bool = False,
) -> int:  # fmt: skip
    """Receive what ``send_object_list`` sent (None: from anyone); the source's global rank."""
    if outsider("recv_object_list", group):
        return -1
    g = group_or_default(group)
    source = None if src is None and group_src is None else root_in(g, "src", src, group_src)
    found, at = objects.recv(g, source, default=list(object_list))
    _fill("recv_object_list", object_list, found)
    return g.ranks[at]
