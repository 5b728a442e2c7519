"""nccl4py's names, as far as ``comm/nccl`` uses them, over ranks that are threads of this process.

``StandIn(platform)`` has ``core`` and ``raw``; their functions have the parameters of the real
ones (``test_library.py``). What real calls give to a GPU is pending work on a stream of the
device double (``cliques``).
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

from .cliques import Clique, Launch, Op


class Result(IntEnum):
    """As in nccl.h."""

    Success = 0
    UnhandledCudaError = 1
    SystemError = 2
    InternalError = 3
    InvalidArgument = 4
    InvalidUsage = 5
    RemoteError = 6
    InProgress = 7


class NCCLError(Exception):
    pass


class NcclInvalid(Exception):
    pass


class NcclDataType(IntEnum):
    INT8, UINT8, INT32, UINT32, INT64, UINT64 = 0, 1, 2, 3, 4, 5
    FLOAT16, FLOAT32, FLOAT64, BFLOAT16, FLOAT8E4M3, FLOAT8E5M2 = 6, 7, 8, 9, 10, 11

    @property
    def numpy_dtype(self) -> np.dtype:
        return _DTYPES[self]


_DTYPES = {
    NcclDataType[name]: np.dtype(t)
    for name, t in (
        ("INT8", "int8"), ("UINT8", "uint8"), ("INT32", "int32"), ("UINT32", "uint32"),
        ("INT64", "int64"), ("UINT64", "uint64"), ("FLOAT16", "float16"), ("FLOAT32", "float32"),
        ("FLOAT64", "float64"), ("BFLOAT16", ml_dtypes.bfloat16),
        ("FLOAT8E4M3", ml_dtypes.float8_e4m3fn), ("FLOAT8E5M2", ml_dtypes.float8_e5m2),
    )
}  # fmt: skip


class NcclRedOp(IntEnum):
    SUM, PROD, MAX, MIN, AVG = 0, 1, 2, 3, 4


class CommShrinkFlag(IntEnum):
    DEFAULT, ABORT = 0, 1


class UniqueId:
    def __init__(self, data: bytes = bytes(128)) -> None:
        self._data = data

    @staticmethod
    def from_bytes(b: bytes) -> UniqueId:
        assert len(b) == 128
        return UniqueId(bytes(b))

    def __bytes__(self) -> bytes:
        return self._data


class NCCLConfig:
    def __init__(self, *, blocking: bool | None = None) -> None:
        self.blocking = blocking


class ScalarResidence(IntEnum):
    Device, HostImmediate = 0, 1


class CustomRedOp:
    """A sum of values that are multiplied by ``factor`` first."""

    name = "SUM"

    def __init__(self, factor: Any) -> None:
        self.factor, self.closed = factor, False

    def __str__(self) -> str:
        return f"SUM of {self.factor} times"


class Communicator:
    """One rank's end of a clique."""

    binding: StandIn

    def __init__(self, ptr: int | None = None) -> None:
        self.ptr = 0 if ptr is None else ptr
        self.clique: Clique | None = None
        self._rank, self._color = -1, None

    @classmethod
    def init(
        cls, nranks: int, rank: int, unique_id: UniqueId, config: NCCLConfig | None = None
    ) -> Communicator:
        found = cls.binding.cliques.setdefault(
            bytes(unique_id), Clique(nranks, cls.binding.platform._lock)
        )
        assert found.size == nranks and rank not in found.came
        cls.binding.hosts.append((rank, os.environ.get("NCCL_HOSTID")))
        device = cls.binding.platform.current()
        if "NCCL_HOSTID" not in os.environ:  # (one for all ranks of a process)
            if device in found.at:
                raise NCCLError("InvalidUsage (5): Duplicate GPU detected")
            found.at.add(device)
        return cls._join(found, rank, config)

    @classmethod
    def _join(cls, clique: Clique, rank: int, config: NCCLConfig | None) -> Communicator:
        assert config is not None and config.blocking is False
        made = cls(cls.binding.next_ptr())
        made.clique, made._rank = clique, rank
        clique.came[rank] = made
        cls.binding.comms[made.ptr] = made
        return made

    @property
    def is_valid(self) -> bool:
        return self.ptr != 0

    def state(self) -> int:
        clique = self.clique
        if clique is None:
            return Result.Success
        if self._rank in clique.errors:
            return clique.errors[self._rank]
        if not clique.all_here() or (clique.finalized and len(clique.finalized) < clique.size):
            return Result.InProgress
        return Result.Success

    def split(
        self, color: int | None = None, key: int = 0, config: NCCLConfig | None = None
    ) -> Communicator:
        clique = self.clique
        assert clique is not None and config is not None
        number = clique.split_count[self._rank]
        clique.split_count[self._rank] += 1
        clique.splits[number][self._rank] = (color, key)
        made = type(self)(self.binding.next_ptr() if color is not None else 0)
        if color is None:
            return made
        made._color = (number, color, key, self._rank, clique)
        self.binding.comms[made.ptr] = made
        return made

    def grown(self) -> None:
        """Of a split: take one's place once all ranks have said theirs."""
        if self.clique is not None or self._color is None:
            return
        number, color, key, rank, parent = self._color
        said = parent.splits[number]
        if len(said) < parent.size:
            return
        order = sorted((k, r) for r, (c, k) in said.items() if c == color)
        found = parent.children.setdefault((number, color), Clique(len(order), parent.lock))
        self.clique, self._rank = found, order.index((key, rank))
        found.came[self._rank] = self

    def shrink(
        self, exclude_ranks: Any = None, config: NCCLConfig | None = None,
        flag: CommShrinkFlag = CommShrinkFlag.DEFAULT,
    ) -> Communicator:  # fmt: skip
        clique = self.clique
        assert clique is not None and self._rank not in exclude_ranks
        left = [r for r in range(clique.size) if r not in exclude_ranks]
        key = ("shrink", tuple(left))
        found = clique.children.setdefault(key, Clique(len(left), clique.lock))
        return self._join(found, left.index(self._rank), config)

    def finalize(self) -> None:
        assert self.clique is not None
        self.clique.finalized.add(self._rank)

    def destroy(self) -> None:
        self._end()

    def abort(self) -> None:
        self._end()

    def _end(self) -> None:
        if self.clique is not None:
            self.clique.aborted.add(self._rank)
        self.binding.ended.append(self.ptr)
        self.binding.comms.pop(self.ptr, None)
        self.ptr = 0

    def get_last_error(self) -> str:
        return "as the test wants it"


class Comm:
    """As ``raw`` calls it."""

    def __init__(self, handle: int = 0) -> None:
        self.handle = handle

    def __int__(self) -> int:
        return self.handle


class _Group(threading.local):
    depth = 0

    def __init__(self) -> None:
        self.ops: list[tuple[Communicator, int, Op, list[int], list[int]]] = []


class StandIn:
    """The binding on a device double. ``hosts``: (rank, NCCL_HOSTID) of each that has connected;
    ``ended``: communicators that were destroyed or aborted, once each."""

    def __init__(self, platform: Any) -> None:
        self.platform = weakref.proxy(platform)
        self.cliques: dict[bytes, Clique] = {}
        self.comms: dict[int, Communicator] = {}
        self.custom: dict[int, CustomRedOp] = {}
        self.hosts: list[tuple[int, str | None]] = []
        self.ended: list[int] = []
        self.launches: list[tuple[str, ...]] = []
        self.registered: dict[int, tuple[int, int, int]] = {}
        self._ptrs = self._ids = 0
        self._group = _Group()
        bound = type("Communicator", (Communicator,), {"binding": self})
        self.core = SimpleNamespace(
            Communicator=bound, UniqueId=UniqueId, NCCLConfig=NCCLConfig, NcclInvalid=NcclInvalid,
            NcclDataType=NcclDataType, NcclRedOp=NcclRedOp, CommShrinkFlag=CommShrinkFlag,
            get_unique_id=self.get_unique_id, get_error_string=self.get_error_string,
            group_start=self.group_start, group_end=self.group_end,
        )  # fmt: skip
        self.raw = SimpleNamespace(
            Result=Result, NCCLError=NCCLError, Comm=Comm, all_reduce=self.all_reduce,
            comm_get_async_error=self.comm_get_async_error, broadcast=self.broadcast,
            reduce=self.reduce, reduce_scatter=self.reduce_scatter, all_gather=self.all_gather,
            send=self.send, recv=self.recv, comm_register=self.comm_register,
            comm_deregister=self.comm_deregister, ScalarResidence=ScalarResidence,
            red_op_create_pre_mul_sum=self.red_op_create_pre_mul_sum,
            red_op_destroy=self.red_op_destroy,
        )  # fmt: skip

    def next_ptr(self) -> int:
        self._ptrs += 1
        return self._ptrs

    def fail_all(self) -> None:
        """Every communicator reports an error of another rank's."""
        for comm in self.comms.values():
            comm.clique.errors.update(dict.fromkeys(range(comm.clique.size), Result.RemoteError))

    def hang_all(self) -> None:
        """Nothing ends any more that is given to a communicator, until it is aborted."""
        for comm in self.comms.values():
            comm.clique.hangs = True

    # -- core ---------------------------------------------------------------------------------

    def get_unique_id(self, empty: bool = False) -> UniqueId:
        self._ids += 1
        return UniqueId(self._ids.to_bytes(128, "big"))

    def get_error_string(self, nccl_result: int) -> str:
        return Result(int(nccl_result)).name

    def group_start(self) -> None:
        self._group.depth += 1

    def group_end(self, *, simulate: bool = False) -> None:
        group = self._group
        group.depth -= 1
        if group.depth:
            return
        ops, group.ops = group.ops, []
        by_comm: dict[tuple[int, int], list] = {}
        for comm, stream, op, reads, writes in ops:
            by_comm.setdefault((comm.ptr, stream), []).append((comm, op, reads, writes))
        for (_, stream), rows in by_comm.items():
            self._launch(rows[0][0], stream, rows)

    # -- raw ----------------------------------------------------------------------------------

    def comm_get_async_error(self, comm: Comm) -> int:
        found = self.comms.get(int(comm))
        if found is None:
            raise NCCLError(f"communicator {int(comm)} was ended, and is used")
        found.grown()
        if found._color is not None and found.clique is None:
            return Result.InProgress
        return found.state()

    def comm_register(self, comm: Comm, buff: int, size: int) -> int:
        self._memory(buff)
        handle = self.next_ptr()
        self.registered[handle] = int(comm), buff, size
        return handle

    def comm_deregister(self, comm: Comm, handle: int) -> None:
        assert self.registered.pop(handle)[0] == int(comm)

    def all_reduce(
        self, sendbuff: int, recvbuff: int, count: int, datatype: int, op: int, comm: Comm,
        stream: int,
    ) -> None:  # fmt: skip
        self._add("all_reduce", comm, stream, datatype, (sendbuff, count), (recvbuff, count), op)

    def broadcast(
        self, sendbuff: int, recvbuff: int, count: int, datatype: int, root: int, comm: Comm,
        stream: int,
    ) -> None:  # fmt: skip
        mine = self.comms[int(comm)]._rank == root
        given = (sendbuff if mine else recvbuff, count)
        self._add("broadcast", comm, stream, datatype, given, (recvbuff, count), root=root)

    def reduce(
        self, sendbuff: int, recvbuff: int, count: int, datatype: int, op: int, root: int,
        comm: Comm, stream: int,
    ) -> None:  # fmt: skip
        mine = self.comms[int(comm)]._rank == root
        to = (recvbuff, count) if mine else None
        self._add("reduce", comm, stream, datatype, (sendbuff, count), to, op, root)

    def reduce_scatter(
        self, sendbuff: int, recvbuff: int, recvcount: int, datatype: int, op: int, comm: Comm,
        stream: int,
    ) -> None:  # fmt: skip
        clique = self.comms[int(comm)].clique
        given = (sendbuff, recvcount * clique.size)  # type: ignore[union-attr]
        self._add("reduce_scatter", comm, stream, datatype, given, (recvbuff, recvcount), op)

    def all_gather(
        self, sendbuff: int, recvbuff: int, sendcount: int, datatype: int, comm: Comm, stream: int
    ) -> None:
        clique = self.comms[int(comm)].clique
        into = (recvbuff, sendcount * clique.size)  # type: ignore[union-attr]
        self._add("all_gather", comm, stream, datatype, (sendbuff, sendcount), into)

    def send(
        self, sendbuff: int, count: int, datatype: int, peer: int, comm: Comm, stream: int
    ) -> None:
        self._add("send", comm, stream, datatype, (sendbuff, count), None, peer=peer)

    def recv(
        self, recvbuff: int, count: int, datatype: int, peer: int, comm: Comm, stream: int
    ) -> None:
        self._add("recv", comm, stream, datatype, None, (recvbuff, count), peer=peer)

    def red_op_create_pre_mul_sum(
        self, scalar: int, datatype: int, residence: int, comm: Any
    ) -> int:
        assert residence == ScalarResidence.HostImmediate and int(comm) in self.comms
        kind = _DTYPES[NcclDataType(datatype)]
        factor = np.frombuffer(ctypes.string_at(scalar, kind.itemsize), kind)[0]
        code = 100 + len(self.custom)
        self.custom[code] = CustomRedOp(factor)
        return code

    def red_op_destroy(self, op: int, comm: Any) -> None:
        assert int(comm) in self.comms and not self.custom[op].closed, "closed twice"
        self.custom[op].closed = True

    # -- what becomes of it -------------------------------------------------------------------

    def _add(
        self, verb: str, comm: Comm, stream: int, datatype: int, given: Any, into: Any,
        op: int | None = None, root: int = -1, peer: int = -1,
    ) -> None:  # fmt: skip
        assert self._group.depth, "calls are collected in groups"
        found = self.comms.get(int(comm))
        if found is None or found.clique is None:
            raise NCCLError(f"{verb}: communicator {int(comm)} was ended")
        assert found.state() != Result.InProgress, f"{verb}: the communicator is busy"
        dtype = _DTYPES[NcclDataType(datatype)]
        how = None if op is None else self.custom[op] if op >= 100 else NcclRedOp(op)
        assert not getattr(how, "closed", False), "the operator was closed"
        views = [None if row is None else self._view(*row, dtype) for row in (given, into)]
        made = Op(verb, views[0], views[1], dtype, how, root, peer)
        reads = [] if given is None else [given[0]]
        self._group.ops.append((found, stream, made, reads, [] if into is None else [into[0]]))

    def _view(self, address: int, count: int, dtype: np.dtype) -> np.ndarray:
        owner = self._memory(address).owner
        start = address - owner.__array_interface__["data"][0]
        flat = owner.reshape(-1).view(np.uint8)
        assert start + count * dtype.itemsize <= flat.nbytes, "beyond the end of the memory"
        return flat[start : start + count * dtype.itemsize]

    def _memory(self, address: int) -> Any:
        return self.platform.memory_at(address)

    def _launch(self, comm: Communicator, stream: int, rows: list) -> None:
        with self.platform._lock:
            self._launch_alone(comm, stream, rows)

    def _launch_alone(self, comm: Communicator, stream: int, rows: list) -> None:
        platform, clique = self.platform, comm.clique
        assert clique is not None
        place = platform.stream_of(stream)
        last = {p.point.stream: p for p in platform.pending_before(place)}
        before = [p.finish.__self__ for p in last.values()]
        ops = [op for _, op, _, _ in rows]
        launch = Launch(clique, comm._rank, ops, before)
        for op in ops:
            clique.issue(comm._rank, op)
        reads = [SimpleNamespace(_memory=self._memory(a)) for _, _, r, _ in rows for a in r]
        writes = [SimpleNamespace(_memory=self._memory(a)) for _, _, _, w in rows for a in w]
        # What belongs to the stream, or was told of it, lives until it is done; nothing else does.
        used = [each._memory for each in (*reads, *writes)]
        launch.kept = [m for m in used if m.home is place or place.id in m.told]
        name = f"nccl {'+'.join(sorted({op.verb for op in ops}))} of rank {comm._rank}"
        self.launches.append(tuple(op.verb for op in ops))
        platform.enqueue(name, place, reads, writes, launch.can_end, launch.end)
