"""The group that programs hold: a group of arrays with PyTorch's methods on tensors beside.

Programs for PyTorch call ``group.allreduce(tensor).wait()`` and its like on a group itself. Knows
groups and tensors; not which group is the default one.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np

from ...backends.device.platform import platform_of
from ...comm.calls.count import Count
from ...comm.calls.reduce_ops import ReduceOp
from ...comm.calls.transport import Transport
from ...comm.calls.work import Done, Within, Work
from ...comm.group import group as arrays
from ...core.tensor import Tensor
from ...errors import ConfigError
from .arrays import array_of, arrays_of, handed, seconds_of

UNSET = timedelta(milliseconds=-1)  # PyTorch's time limit of a call that was given none


class Options:
    """What PyTorch's methods take as ``opts``: any of its attributes may be set."""

    reduceOp = ReduceOp.SUM  # noqa: N815
    rootRank = rootTensor = 0  # noqa: N815
    timeout: Any = UNSET
    asyncOp = True  # noqa: N815
    sparseIndices: Any = None  # noqa: N815
    device_ids: Sequence[int] = ()
    device: Any = None


class AllreduceOptions(Options):
    """Of ``all_reduce``."""


class AllreduceCoalescedOptions(AllreduceOptions):
    """Of ``all_reduce`` of several tensors at once."""


class AllgatherOptions(Options):
    """Of ``all_gather``."""


class AllToAllOptions(Options):
    """Of ``all_to_all``."""


class BarrierOptions(Options):
    """Of ``barrier``."""


class BroadcastOptions(Options):
    """Of ``broadcast``."""


class GatherOptions(Options):
    """Of ``gather``."""


class ReduceOptions(Options):
    """Of ``reduce``."""


class ReduceScatterOptions(Options):
    """Of ``reduce_scatter``."""


class ScatterOptions(Options):
    """Of ``scatter``."""


class BackendType(enum.Enum):
    """The kinds of backends that PyTorch tells apart."""

    UNDEFINED, GLOO, NCCL, XCCL, UCC, MPI, CUSTOM = 0, 1, 2, 3, 4, 5, 6


class Name(str):
    """A group's name. Programs for PyTorch call it, and get the name of its backend."""

    backend = ""

    def __call__(self) -> str:
        return self.backend


class ProcessGroup(arrays.ProcessGroup):
    """Ranks that make the same calls.

    ``rank()``, ``size()``, ``name``; ``ranks``: the global rank of each member. The methods below
    take Tensors (or lists of one, as PyTorch's do) and return a ``Work`` to wait for.

    ``ProcessGroup(rank, size)`` is the beginning of a program's own backend (see
    ``Backend.register_backend``): it has a rank, a size and a name, and moves nothing by itself.
    """

    BackendType = BackendType
    group_desc = "undefined"
    bound_device_id: Any = None
    coalescing: list[Work] | None = None  # what was started within ``_coalescing_manager``

    def __init__(self, *args: Any, **settings: Any) -> None:
        if args and not isinstance(args[0], Transport):
            self._alone(*args)
            return
        super().__init__(*args, **settings)
        self.name = Name(self.name)
        self.name.backend = self.backend

    def _alone(self, *given: int) -> None:
        """``given``: rank and size, after a store or not. What a subclass defines stays its own."""
        *_, rank, size = given
        own = {"rank": Count(rank), "size": Count(size), "name": Name("undefined")}
        for name, value in own.items():
            if not hasattr(type(self), name):
                setattr(self, name, value)
        told = getattr(self, "getBackendName", None)
        if isinstance(self.name, Name):
            self.name.backend = "undefined" if told is None else told()

    @property
    def group_name(self) -> str:
        return self.name

    def set_timeout(self, timeout: timedelta | float) -> None:
        """How long the waits of this group last from now on."""
        self.timeout = seconds_of("set_timeout", timeout) or self.timeout

    _set_default_timeout = set_timeout

    def _get_backend_name(self) -> str:
        return self.backend

    def allreduce(
        self, tensors: Any, op: Any = ReduceOp.SUM, timeout: timedelta | float | None = None
    ) -> Work:
        opts = op if isinstance(op, Options) else None
        given = _list(tensors)
        reduce = op if opts is None else opts.reduceOp
        works = [self.all_reduce(array_of("allreduce", t), reduce, async_op=True) for t in given]
        return _together(works, given, opts, timeout)

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any = Options) -> Work:
        rows = arrays_of("allreduce_coalesced", tensors, True)
        work = self.all_reduce_coalesced(rows, opts.reduceOp, async_op=True)
        return _work(work, tensors, opts)

    def broadcast(
        self, tensors: Any, root: Any = 0, timeout: timedelta | float | None = None,
        *, async_op: bool = False,
    ) -> Any:  # fmt: skip
        if _is_raw(tensors):
            return super().broadcast(tensors, root, async_op=async_op)
        opts, given, root = root, _list(tensors), getattr(root, "rootRank", root)
        written = self.rank != root
        works = [
            super(ProcessGroup, self).broadcast(
                array_of("broadcast", t, written), root, async_op=True
            )
            for t in given
        ]
        return _together(works, given, opts, timeout)

    def reduce(
        self, tensors: Any, root: Any = 0, op: Any = ReduceOp.SUM,
        timeout: timedelta | float | None = None, *, async_op: bool = False,
    ) -> Any:  # fmt: skip
        if _is_raw(tensors):
            return super().reduce(tensors, root, op, async_op=async_op)
        opts = root
        if isinstance(root, Options):
            root, op = root.rootRank, root.reduceOp
        (t,) = _list(tensors)
        array = array_of("reduce", t, self.rank == root)
        return _work(super().reduce(array, root, op, async_op=True), [t], opts, timeout)

    def allgather(
        self,
        output_tensors: Any,
        input_tensors: Any,
        opts: object = None,
        timeout: timedelta | float | None = None,
    ) -> Work:
        """``output_tensors``: a list of tensors, or a list of one such list."""
        (t,) = _list(input_tensors)
        outs = _inner(output_tensors)
        rows = arrays_of("allgather", outs, True)
        work = self.all_gather(rows, array_of("allgather", t, False), async_op=True)
        return _work(work, outs, opts, timeout)

    def _allgather_base(
        self, output: Tensor, input: Tensor, opts: AllgatherOptions | None = None
    ) -> Work:
        out = array_of("_allgather_base", output)
        given = array_of("_allgather_base", input, False)
        return _work(self.all_gather_single(out, given, async_op=True), [output], opts)

    def allgather_coalesced(
        self, output_lists: list, input_list: list, opts: object = None
    ) -> Work:
        outs = [arrays_of("allgather_coalesced", row, True) for row in output_lists]
        ins = arrays_of("allgather_coalesced", input_list, False)
        return _work(self.all_gather_coalesced(outs, ins, async_op=True), output_lists, opts)

    def gather(
        self, output_tensors: Any, input_tensors: Any, root: Any = 0,
        timeout: timedelta | float | None = None, *, async_op: bool = False,
    ) -> Any:  # fmt: skip
        if _is_raw(output_tensors):
            return super().gather(output_tensors, input_tensors, root, async_op=async_op)
        opts, (t,), root = root, _list(input_tensors), getattr(root, "rootRank", root)
        outs = _inner(output_tensors) if self.rank == root else None
        rows = None if outs is None else arrays_of("gather", outs, True)
        array = array_of("gather", t, False)
        work = super().gather(array, rows, root, async_op=True)
        return _work(work, outs or [], opts, timeout)

    def scatter(
        self, output_tensors: Any, input_tensors: Any, root: Any = 0,
        timeout: timedelta | float | None = None, *, async_op: bool = False,
    ) -> Any:  # fmt: skip
        if _is_raw(output_tensors):
            return super().scatter(output_tensors, input_tensors, root, async_op=async_op)
        opts, (t,), root = root, _list(output_tensors), getattr(root, "rootRank", root)
        ins = _inner(input_tensors) if self.rank == root else None
        rows = None if ins is None else arrays_of("scatter", ins, False)
        work = super().scatter(array_of("scatter", t), rows, root, async_op=True)
        return _work(work, [t], opts, timeout)

    def reduce_scatter(
        self, output_tensors: Any, input_tensors: Any, op: Any = ReduceOp.SUM,
        timeout: timedelta | float | None = None, *, async_op: bool = False,
    ) -> Any:  # fmt: skip
        if _is_raw(output_tensors):
            return super().reduce_scatter(output_tensors, input_tensors, op, async_op=async_op)
        (t,) = _list(output_tensors)
        rows = arrays_of("reduce_scatter", _inner(input_tensors), False)
        opts, array, op = op, array_of("reduce_scatter", t), getattr(op, "reduceOp", op)
        return _work(super().reduce_scatter(array, rows, op, async_op=True), [t], opts, timeout)

    def _reduce_scatter_base(self, output: Tensor, input: Tensor, opts: Any = Options) -> Work:
        out = array_of("_reduce_scatter_base", output)
        given = array_of("_reduce_scatter_base", input, False)
        work = self.reduce_scatter_single(out, given, opts.reduceOp, async_op=True)
        return _work(work, [output], opts)

    def alltoall(
        self, output_tensors: list, input_tensors: list, opts: AllToAllOptions | None = None
    ) -> Work:
        outs = arrays_of("alltoall", output_tensors, True)
        ins = arrays_of("alltoall", input_tensors, False)
        return _work(self.all_to_all(outs, ins, async_op=True), output_tensors, opts)

    def alltoall_base(
        self, output: Tensor, input: Tensor, output_split_sizes: list, input_split_sizes: list,
        opts: AllToAllOptions | None = None,
    ) -> Work:  # fmt: skip
        out, given = array_of("alltoall_base", output), array_of("alltoall_base", input, False)
        splits = output_split_sizes or None, input_split_sizes or None
        return _work(self.all_to_all_single(out, given, *splits, async_op=True), [output], opts)

    def send(self, tensors: Any, dst: int, tag: int = 0) -> Any:
        if _is_raw(tensors):
            return super().send(tensors, dst, tag)
        (t,) = _list(tensors)
        return _work(self.isend(array_of("send", t, False), dst, tag), [t])

    def recv(self, tensors: Any, src: int | None = None, tag: int = 0) -> Any:
        if _is_raw(tensors):
            return super().recv(tensors, src, tag)
        (t,) = _list(tensors)
        return _work(self.irecv(array_of("recv", t), src, tag), [t])

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Work:
        return self.recv(_list(tensors), None, tag)

    def barrier(
        self, opts: BarrierOptions | None = None, timeout: timedelta | float | None = None,
        *, async_op: bool = False,
    ) -> Work:  # fmt: skip
        """Meets the others before it returns, unless with ``async_op``."""
        limit = _limit(opts, timeout)
        if limit is None:
            work = super().barrier(async_op=async_op)
            return _DONE if work is None else work
        work = super().barrier(async_op=True)
        assert work is not None
        if async_op:
            return Within(work, limit)
        work.wait(limit)
        return work


def group_on(transport: Transport, *args: bool | list | str, **settings: object) -> ProcessGroup:
    """A group of the kind that belongs to its transport."""
    return (transport.group_type or ProcessGroup)(transport, *args, **settings)


_DONE = Done()


def _is_raw(given: object) -> bool:
    """Whether it is an array, of the host or a device, as the groups of ``comm`` take them."""
    return given.__class__ is np.ndarray or platform_of(given) is not None


def _list(tensors: Any) -> list[Tensor]:
    return list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]


def _inner(tensors: Any) -> list[Tensor]:
    """A list of tensors, also where it is the only one of a list of lists."""
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        return list(tensors[0])
    if tensors and isinstance(tensors[0], (list, tuple)):
        raise ConfigError(f"process group: {len(tensors)} lists given; this rank needs one")
    return list(tensors)


def _limit(*given: object) -> float | None:
    """The seconds that options, or a time itself, give a call; None where it was given none."""
    for each in given:
        timeout = getattr(each, "timeout", each if isinstance(each, (timedelta, float)) else None)
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        if seconds is not None and seconds > 0:
            return seconds
    return None


def _work(work: Work | None, outputs: Sequence[Any], *limits: object) -> Work:
    """``limits``: options and times, of which one may limit how long it is waited for."""
    limit = _limit(*limits)
    found = handed(work if work is None or limit is None else Within(work, limit), True, *outputs)
    assert found is not None
    return found


def _together(works: list[Work | None], outputs: list[Tensor], *limits: object) -> Work:
    if len(works) != 1:
        raise ConfigError(f"process group: {len(works)} tensors given; one is needed")
    return _work(works[0], outputs, *limits)
