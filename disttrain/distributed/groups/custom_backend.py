"""Groups whose data is moved by a program's own object with PyTorch's methods.

``Backend.register_backend(name, creator)`` names a function that makes the object, one for each
group; every verb calls its method of that verb, with tensors on the caller's memory, and options.
Where it lacks a method that is only another form of one it has, that one is called.

Knows tensors and the verbs; nothing of how the object moves data. What its ranks must agree on is
the object's own business, and nothing is compared.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np

from ... import context
from ...comm.calls.header import Call
from ...comm.calls.reduce_ops import ReduceOp
from ...comm.calls.transport import Swap, Transport
from ...comm.calls.work import Done, Work
from ...comm.job.ending import at_end, never_mind
from ...comm.meeting.meeting import Meeting
from ...comm.store import PrefixStore, Store
from ...core.annotations import DeviceLike
from ...core.tensor import wrap
from ...errors import BackendError, CommError
from . import process_group as options
from .process_group import ProcessGroup

SUM = ReduceOp.SUM
_LEAVE_SECONDS = 5.0  # as long rank 0 waits for the others when a group ends


class DistributedBackendOptions:
    """What a creator with ``extended_api`` is told."""

    def __init__(
        self, store: Any, rank: int, size: int, timeout: timedelta, name: str, ranks: list[int]
    ) -> None:
        self.store, self.group_rank, self.group_size = store, rank, size
        self.timeout, self.group_id, self.global_ranks_in_group = timeout, name, ranks


class TheirWork(Work):
    """A work of the object: ``wait`` and ``is_completed`` are its own, as are attributes that a
    ``Work`` lacks."""

    __slots__ = ("_give", "_of")

    def __init__(self, of: Any, give: Callable[[], Any]) -> None:
        """``give``: the result, once it has ended."""
        super().__init__()
        self._of, self._give = of, give

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)

    def _poll(self) -> None:
        if _overrides(self._of, "is_completed", Work) and self._of.is_completed():
            self._block(None)

    def _block(self, timeout: float | None) -> None:
        try:
            if timeout is None:
                self._of.wait()
            else:
                self._of.wait(timedelta(seconds=timeout))
            result = self._give()
        except Exception as error:
            self._end(error=error)
            return
        self._end(result)


class Backend:
    """The object, and the calls of its methods."""

    def __init__(self, name: str, theirs: Any, size: int) -> None:
        self.name, self.theirs, self.size = name, theirs, size

    def has(self, verb: str) -> bool:
        """Whether the object has a method of its own."""
        return _overrides(self.theirs, verb, ProcessGroup)

    def call(self, verb: str, result: Any, async_op: bool, *args: Any, **named: Any) -> Any:
        """Its method ``verb``: with ``async_op`` a Work, else None once it is over."""
        if not self.has(verb):
            raise BackendError(
                f"{verb}: backend {self.name!r} cannot do it: its {type(self.theirs).__name__} "
                f"has no method {verb}(); needed is one, as PyTorch's ProcessGroup has it"
            )
        work = getattr(self.theirs, verb)(*args, **named)
        if work is not None and not async_op:
            work.wait()
            return None
        if not async_op:
            return None
        return Done(result) if work is None else TheirWork(work, lambda: result)

    def all_reduce(self, array: np.ndarray, op: ReduceOp = SUM, async_op: bool = False) -> Any:
        opts = _told(options.AllreduceOptions, async_op, reduceOp=op)
        return self.call("allreduce", array, async_op, [wrap(array)], opts)

    def broadcast(self, array: np.ndarray, root: int, async_op: bool) -> Any:
        opts = _told(options.BroadcastOptions, async_op, rootRank=root)
        return self.call("broadcast", array, async_op, [wrap(array)], opts)

    def reduce(
        self, array: np.ndarray, root: int, op: ReduceOp = SUM, async_op: bool = False
    ) -> Any:
        opts = _told(options.ReduceOptions, async_op, rootRank=root, reduceOp=op)
        return self.call("reduce", array, async_op, [wrap(array)], opts)

    def all_gather(self, outs: Sequence[np.ndarray], array: np.ndarray, async_op: bool) -> Any:
        opts = _told(options.AllgatherOptions, async_op)
        lists = [list(map(wrap, outs))]
        return self.call("allgather", outs, async_op, lists, [wrap(array)], opts)

    def all_gather_single(self, out: np.ndarray, array: np.ndarray, async_op: bool) -> Any:
        if not self.has("_allgather_base"):
            rows = _rows(out, [array.shape] * self.size)
            if rows is not None:
                return self.all_gather(rows, array, async_op)
        opts = _told(options.AllgatherOptions, async_op)
        return self.call("_allgather_base", out, async_op, wrap(out), wrap(array), opts)

    def reduce_scatter(
        self,
        out: np.ndarray,
        ins: Sequence[np.ndarray],
        op: ReduceOp = SUM,
        async_op: bool = False,
    ) -> Any:
        opts = _told(options.ReduceScatterOptions, async_op, reduceOp=op)
        lists = [list(map(wrap, ins))]
        return self.call("reduce_scatter", out, async_op, [wrap(out)], lists, opts)

    def reduce_scatter_single(
        self, out: np.ndarray, array: np.ndarray, op: ReduceOp = SUM, async_op: bool = False
    ) -> Any:
        if not self.has("_reduce_scatter_base"):
            rows = _rows(array, [out.shape] * self.size)
            if rows is not None:
                return self.reduce_scatter(out, rows, op, async_op)
        opts = _told(options.ReduceScatterOptions, async_op, reduceOp=op)
        return self.call("_reduce_scatter_base", out, async_op, wrap(out), wrap(array), opts)

    def all_to_all(
        self, outs: Sequence[np.ndarray], ins: Sequence[np.ndarray], async_op: bool
    ) -> Any:
        opts = _told(options.AllToAllOptions, async_op)
        pairs = list(map(wrap, outs)), list(map(wrap, ins))
        return self.call("alltoall", outs, async_op, *pairs, opts)

    def all_to_all_single(
        self,
        out: np.ndarray,
        array: np.ndarray,
        out_splits: Sequence[int] | None = None,
        in_splits: Sequence[int] | None = None,
        async_op: bool = False,
    ) -> Any:
        if not self.has("alltoall_base"):
            into = _rows(out, _cuts(out, out_splits, self.size))
            from_ = _rows(array, _cuts(array, in_splits, self.size))
            if into is not None and from_ is not None:
                return self.all_to_all(into, from_, async_op)
        opts = _told(options.AllToAllOptions, async_op)
        splits = list(out_splits or ()), list(in_splits or ())
        return self.call("alltoall_base", out, async_op, wrap(out), wrap(array), *splits, opts)

    def gather(
        self, array: np.ndarray, outs: Sequence[np.ndarray] | None, root: int, async_op: bool
    ) -> Any:
        opts = _told(options.GatherOptions, async_op, rootRank=root)
        lists = [] if outs is None else [list(map(wrap, outs))]
        return self.call("gather", outs, async_op, lists, [wrap(array)], opts)

    def scatter(
        self, out: np.ndarray, ins: Sequence[np.ndarray] | None, root: int, async_op: bool
    ) -> Any:
        opts = _told(options.ScatterOptions, async_op, rootRank=root)
        lists = [] if ins is None else [list(map(wrap, ins))]
        return self.call("scatter", out, async_op, [wrap(out)], lists, opts)

    def barrier(self, async_op: bool) -> Any:
        return self.call("barrier", None, async_op, opts=_told(options.BarrierOptions, async_op))

    def send(self, array: np.ndarray, dst: int, tag: int) -> Work:
        return self.call("send", array, True, [wrap(array)], dst, tag)

    def recv(self, array: np.ndarray, src: int | None, tag: int) -> Work:
        if src is not None:
            return self.call("recv", src, True, [wrap(array)], src, tag)
        work = self.call("recv_anysource", None, True, [wrap(array)], tag)
        if isinstance(work, TheirWork):
            work._give = work._of.source_rank
        return work

    def end(self) -> None:
        """The group is over."""
        if self.has("shutdown"):
            self.theirs.shutdown()


def _without_header(verb: str) -> Any:
    """A transport's verb: that of the ``Backend``, which compares no headers."""

    def method(
        self: PluggedTransport,
        call: Call,
        *given: ReduceOp | list | np.ndarray,
        ragged: bool = False,
        async_op: bool = False,
    ) -> Work | None:
        return getattr(self.of, verb)(*given, async_op=async_op)

    return method


class PluggedTransport(Transport):
    """The object as what a group's own ways of moving flat arrays go through."""

    kind = "plugged"
    divides = False

    def __init__(
        self, plugin: Any, backend: str, store: Store, at: tuple[int, list[int]], limit: float,
        name: str = "world",
    ) -> None:  # fmt: skip
        """``at``: this rank in the group, and the members' ranks in the world."""
        rank, ranks = at
        super().__init__(rank, len(ranks), name, limit)
        self._plugin, self._backend, self._store, self._ranks = plugin, backend, store, ranks
        within = timedelta(seconds=limit)
        if plugin.extended_api:
            told = DistributedBackendOptions(store, rank, len(ranks), within, name, ranks)
            theirs = plugin.creator_fn(told, None)
        else:
            theirs = plugin.creator_fn(store, rank, len(ranks), within)
        if theirs is None:
            raise BackendError(
                f"init_process_group: backend={backend!r}: the function that was registered for it "
                "returned None; needed is an object with the methods of a ProcessGroup"
            )
        self.of = Backend(backend, theirs, len(ranks))
        self.group_type = PluggedGroup

    barrier = _without_header("barrier")
    broadcast = _without_header("broadcast")
    all_reduce = _without_header("all_reduce")
    all_gather = _without_header("all_gather")
    reduce_scatter = _without_header("reduce_scatter")
    all_to_all = _without_header("all_to_all")

    def send(self, call: Call, array: np.ndarray, dst: int, tag: int) -> Work:
        return self.of.send(array, dst, tag)

    def recv(self, call: Call, array: np.ndarray, src: int | None, tag: int) -> Work:
        return self.of.recv(array, src, tag)

    def split(
        self, call: Call, members: Sequence[int] | None, name: str, swap: Swap | None = None
    ) -> PluggedTransport | None:
        if members is None:
            return None
        ranks = [self._ranks[i] for i in members]
        store = PrefixStore(name, self._store)
        at = list(members).index(self.rank), ranks
        return PluggedTransport(self._plugin, self._backend, store, at, self.timeout, name)

    def close(self, call: Call | None) -> None:
        """Rank 0, which may host the store, leaves last: the object of another rank may still read
        there."""
        self.of.end()
        never_mind(self.end_program, context.current())
        if call is None:
            return
        with contextlib.suppress(CommError):
            if self._store.add("left", 1) == self.size:
                self._store.set("all left", b"1")
            if self.rank == 0:
                self._store.wait(["all left"], min(self.timeout, _LEAVE_SECONDS))

    def begin(self) -> None:
        """This rank has met the others, and made its object."""
        self._store.add("begun", 1)
        if self.rank == 0:
            at_end(self.end_program)

    def end_program(self) -> None:
        """The program of rank 0, which may host the store, ends without having left the group: all
        the others are to have begun."""
        if hasattr(sys, "last_type"):  # an error, of which the others are told otherwise
            return
        with contextlib.suppress(CommError):
            context.wait_until(
                lambda: self._store.add("begun", 0) >= self.size,
                lambda: "all ranks to have begun",
                min(self.timeout, _LEAVE_SECONDS),
            )


def _of_arrays(verb: str) -> Any:
    """A group's verb on arrays."""

    def method(
        self: PluggedGroup,
        *given: ReduceOp | list | np.ndarray | None,
        async_op: bool = False,
        **named: object,
    ) -> Any:
        return getattr(self.transport.of, verb)(*given, async_op=async_op, **named)

    return method


def _of_both(verb: str) -> Any:
    """A verb that groups are given arrays for, objects tensors."""

    def method(self: PluggedGroup, *given: object, async_op: bool = False, **named: object) -> Any:
        if given and given[0].__class__ is np.ndarray:
            return getattr(self.transport.of, verb)(*given, async_op=async_op, **named)
        return getattr(self.theirs, verb)(*given, **named)

    return method


class PluggedGroup(ProcessGroup):
    """A group on such a transport. Its PyTorch methods and further attributes are the object's."""

    transport: PluggedTransport

    @property
    def theirs(self) -> Any:
        return self.transport.of.theirs

    def __getattr__(self, name: str) -> Any:
        if name == "transport":
            raise AttributeError(name)
        return getattr(self.theirs, name)

    def _get_backend(self, device: DeviceLike | None) -> Any:
        return self.theirs

    all_reduce = _of_arrays("all_reduce")
    all_gather = _of_arrays("all_gather")
    all_gather_single = _of_arrays("all_gather_single")
    reduce_scatter_single = _of_arrays("reduce_scatter_single")
    all_to_all = _of_arrays("all_to_all")
    all_to_all_single = _of_arrays("all_to_all_single")

    def isend(self, array: np.ndarray, dst: int, tag: int = 0) -> Work:
        return self.transport.of.send(array, dst, tag)

    def irecv(self, array: np.ndarray, src: int | None = None, tag: int = 0) -> Work:
        return self.transport.of.recv(array, src, tag)

    def barrier(
        self,
        opts: object = None,
        timeout: timedelta | float | None = None,
        *,
        async_op: bool = False,
    ) -> Any:
        work = self.transport.of.barrier(async_op)
        return Done() if work is None else work

    # Names that both kinds of callers have: groups are given arrays, objects tensors.

    broadcast = _of_both("broadcast")
    reduce = _of_both("reduce")
    gather = _of_both("gather")
    scatter = _of_both("scatter")
    reduce_scatter = _of_both("reduce_scatter")

    def send(self, tensors: object, *given: Any, **named: Any) -> Any:  # type: ignore[override]
        if tensors.__class__ is np.ndarray:
            return super().send(tensors, *given, **named)
        return self.theirs.send(tensors, *given, **named)

    def recv(self, tensors: object, *given: Any, **named: Any) -> Any:  # type: ignore[override]
        if tensors.__class__ is np.ndarray:
            return super().recv(tensors, *given, **named)
        return self.theirs.recv(tensors, *given, **named)


_PYTORCHS = (
    "allreduce", "allreduce_coalesced", "allgather", "allgather_coalesced", "_allgather_base",
    "_reduce_scatter_base", "alltoall", "alltoall_base", "recv_anysource",
)  # fmt: skip


def _theirs_first(verb: str) -> Callable[..., Any]:
    """A method on tensors: the object's, else what the group makes of those that it has."""
    usual = getattr(ProcessGroup, verb)

    def method(self: PluggedGroup, *args: list | options.AllreduceOptions, **named: object) -> Any:
        if self.transport.of.has(verb):
            return getattr(self.theirs, verb)(*args, **named)
        return usual(self, *args, **named)

    return method


for _verb in _PYTORCHS:
    setattr(PluggedGroup, _verb, _theirs_first(_verb))


def connect(plugin: object, meeting: Meeting) -> PluggedTransport:
    """The transport of the meeting's ranks: each makes its object, with a part of their store."""
    ranks = list(range(meeting.size)) if meeting.ranks is None else list(meeting.ranks)
    name = meeting.wanted
    store = PrefixStore(name, meeting.store())
    made = PluggedTransport(plugin, name, store, (meeting.rank, ranks), meeting.timeout)
    made.begin()
    return made


def _overrides(found: object, name: str, base: type) -> bool:
    """Whether an object has a method that is not merely inherited from ``base``."""
    method = getattr(found, name, None)
    return method is not None and getattr(method, "__func__", None) is not getattr(base, name, None)


def _told(kind: type, async_op: bool, **settings: object) -> Any:
    opts = kind()
    opts.asyncOp = async_op
    for name, value in settings.items():
        setattr(opts, name, value)
    return opts


def _rows(whole: np.ndarray, shapes: Any) -> list[np.ndarray] | None:
    """``whole`` as its pieces in this order, on its memory; None where that cannot be seen so."""
    if not whole.flags.c_contiguous or shapes is None:
        return None
    flat, found, at = whole.reshape(-1), [], 0
    for shape in shapes:
        count = int(np.prod(shape, dtype=np.int64))
        found.append(flat[at : at + count].reshape(shape))
        at += count
    return found if at == whole.size else None


def _cuts(whole: np.ndarray, splits: Sequence[int] | None, size: int) -> list[tuple] | None:
    """The shapes of its pieces along dimension 0."""
    if whole.ndim == 0 or (not splits and whole.shape[0] % size):
        return None
    counts = list(splits) if splits else [whole.shape[0] // size] * size
    return [(n, *whole.shape[1:]) for n in counts]
