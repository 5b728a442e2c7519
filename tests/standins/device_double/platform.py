"""The platform of the device double: devices that are not there, whose work is done on the host,
counted and held to what a device could do."""

from __future__ import annotations

import contextlib
import math
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from disttrain import context
from disttrain.backends.device.platform import Event, Graph, GraphPool, Platform, Stream

from .array import StrictArray
from .graphs import DoubleGraph, NotWhileRecording
from .kernels import launch, matmul, run_code
from .memory import Ledger, Memory, poison
from .module import ArrayModule
from .signatures import dtype_of
from .special import special
from .streams import Clock, DoubleEvent, DoubleStream, Point

GIB = 1 << 30


@dataclass
class Counts:
    """What happened since ``clear``. ``waits``: how often the host waited for a device, and where;
    ``unordered``: scatters whose order a device does not define."""

    uploads: int = 0
    downloads: int = 0
    moves: int = 0
    uploaded: int = 0
    downloaded: int = 0
    moved: int = 0
    blocking: int = 0
    pageable: int = 0
    launches: int = 0
    codes: int = 0
    unordered: int = 0
    waits: list[str] = field(default_factory=list)

    def clear(self) -> None:
        self.__init__()  # type: ignore[misc]

    @property
    def transfers(self) -> int:
        return self.uploads + self.downloads + self.moves


class _Pending:
    """Work on a stream that waits for others: ``ready`` tells, ``finish`` does it."""

    def __init__(self, point: Point, ready: Callable[[], bool], finish: Callable[[], None]) -> None:
        self.point, self.ready, self.finish = point, ready, finish


class _Here(threading.local):
    def __init__(self) -> None:
        self.index = 0
        self.streams: dict[int, DoubleStream] = {}
        self.recording: DoubleGraph | None = None


class DoublePlatform(Platform):
    """Devices that are not there. ``binding``: what ``collectives`` gives."""

    kind = "cuda"
    ranks_in_threads = True
    array_type = StrictArray
    packages = (__package__ or "standins.device_double",)

    def __init__(self, devices: int = 2, total: int = 8 * GIB) -> None:
        self.ledgers = [Ledger(i, total) for i in range(devices)]
        self.counts = Counts()
        self.host = Clock()
        self.xp = ArrayModule(self)
        self._here = _Here()
        self._lock = threading.RLock()
        self._streams: list[DoubleStream] = []
        self._defaults = [self._new_stream(i, 0) for i in range(devices)]
        self._pending: list[_Pending] = []
        self._deferred: list[tuple[Point, Callable[[], None]]] = []
        self.binding: Any = None
        self._pinned: list[np.ndarray] = []
        self._memories: weakref.WeakSet[Memory] = weakref.WeakSet()

    # -- devices ------------------------------------------------------------------------------

    def count(self) -> int:
        return len(self.ledgers)

    def current(self) -> int:
        return self._here.index

    def use(self, index: int) -> None:
        if not 0 <= index < len(self.ledgers):
            raise ValueError(f"device {index}: there are {len(self.ledgers)}")
        self._here.index = index

    def index_of(self, array: Any) -> int:
        return array._memory.ledger.index

    def properties(self, index: int) -> Any:
        return SimpleNamespace(
            name="device double", major=9, minor=0, total_memory=self.ledgers[index].total,
            multi_processor_count=132,
        )  # fmt: skip

    # -- the order of work ----------------------------------------------------------------------

    def tick(self, stream: DoubleStream, name: str) -> Point:
        """The next operation of a stream."""
        stream.clock.merge(self.host)
        tick = stream.clock.ticks.get(stream.id, 0) + 1
        stream.clock.ticks[stream.id] = tick
        return Point(stream.id, tick, name)

    def begin(self, name: str, reads: Any, writes: Any, stream: Any = None) -> Point:
        """An operation on a stream (the current one), which uses memory."""
        stream = self.current_stream() if stream is None else stream
        point = self.tick(stream, name)
        if self._pending:
            self._drain(stream.clock, name)
        for memory in reads:
            memory.read(stream.clock, point)
        for memory in writes:
            memory.write(stream.clock, point)
        return point

    def new_memory(self, owner: np.ndarray, point: Point) -> Memory:
        """Take ``owner`` into the current device's memory, written by ``point``."""
        made = Memory(self, owner, self.ledgers[self.current()], self.current_stream(), point)
        with self._lock:
            self._memories.add(made)
        if self._here.recording is not None:
            self._here.recording.made.append(made)
        return made

    def memory_at(self, address: int) -> Memory:
        """The memory in which an address lies."""
        with self._lock:
            known = list(self._memories)
        for memory in known:
            start = memory.owner.__array_interface__["data"][0]
            if start <= address < start + memory.owner.nbytes:
                return memory
        raise RuntimeError(f"address {address:#x} lies in no array of the device's")

    def stream_of(self, handle: int) -> DoubleStream:
        return self._streams[handle - 1]

    def pending_before(self, stream: DoubleStream) -> list[_Pending]:
        """What the next operation on ``stream`` would wait for."""
        return [p for p in self._pending if stream.clock.covers(p.point)]

    def enqueue(
        self, name: str, stream: DoubleStream, reads: Any, writes: Any,
        ready: Callable[[], bool], finish: Callable[[], None],
    ) -> None:  # fmt: skip
        """Work on ``stream`` that uses the memory of the given arrays and is done by ``finish()``
        once ``ready()``: whatever comes after it waits for that, and the host does not."""
        with self._lock:
            clock = stream.clock
            point = self.tick(stream, name)
            for a in reads:
                a._memory.read(clock, point)
            for a in writes:
                a._memory.write(clock, point)
            self._pending.append(_Pending(point, ready, finish))

    def _drain(self, clock: Clock, why: str) -> None:
        for p in [p for p in self._pending if clock.covers(p.point)]:
            context.wait_until(p.ready, lambda p=p: f"{why}: waits for {p.point}")  # type: ignore[misc]
            with self._lock:
                if p in self._pending:
                    p.finish()
                    self._pending.remove(p)

    def passed(self, clock: Clock) -> bool:
        """Whether all of ``clock`` is done; the host knows it then."""
        with self._lock:
            for p in [p for p in self._pending if clock.covers(p.point)]:
                if not p.ready():
                    return False
                p.finish()
                self._pending.remove(p)
            self._know(clock)
        return True

    def wait_for(self, clock: Clock, what: str) -> None:
        """The host waits."""
        self.synchronized(what)
        self._drain(clock, what)
        self._know(clock)

    def synchronized(self, what: str) -> None:
        """Count that the host waits for the device."""
        if self._here.recording is not None:
            raise NotWhileRecording(f"{what}: the host cannot wait while a graph is recorded")
        self.counts.waits.append(what)

    @contextlib.contextmanager
    def quiet(self) -> Iterator[Counts]:
        """In the block nothing may be copied between host and device, nor waited for."""
        self.counts.clear()
        yield self.counts
        counts = self.counts
        assert not counts.transfers and not counts.waits and not counts.unordered, str(counts)

    def _know(self, clock: Clock) -> None:
        self.host.merge(clock)
        left = []
        for point, act in self._deferred:
            if clock.covers(point):
                act()
            else:
                left.append((point, act))
        self._deferred[:] = left

    # -- memory and transfers -----------------------------------------------------------------

    def room(self, shape: Any, kind: np.dtype) -> None:
        """Raise ``OutOfMemoryError`` before the host is asked for what a device does not have."""
        size = shape if isinstance(shape, int) else math.prod(shape)
        self.ledgers[self.current()].room(size * kind.itemsize)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        kind = dtype_of(dtype)
        self.room(shape, kind)
        owner = np.empty(shape, kind)
        poison(owner)
        return StrictArray(owner, self.new_memory(owner, self.begin("empty", (), ())))

    def upload(self, host: np.ndarray, index: int, non_blocking: bool = False) -> Any:
        dtype_of(host.dtype)
        pinned = self.is_pinned(host)
        self.counts.uploads += 1
        self.counts.uploaded += host.nbytes
        self.counts.pageable += not pinned
        with self._using(index):
            owner = np.array(host, order="C", copy=True)
            point = self.begin("upload", (), ())
            made = StrictArray(owner, self.new_memory(owner, point))
            if not (non_blocking and pinned):
                self.synchronized_copy("upload")
                self.counts.blocking += 1
                return made
            before = owner.copy()

            def unchanged() -> None:
                if before.tobytes() != np.ascontiguousarray(host).tobytes():
                    raise RuntimeError(f"{point}: pinned memory was written before it was copied")

            self._deferred.append((point, unchanged))
            return made

    def synchronized_copy(self, what: str) -> None:
        """A copy that the host waits for."""
        if self._here.recording is not None:
            raise NotWhileRecording(f"{what}: the host would wait while a graph is recorded")

    def download(
        self, array: Any, out: np.ndarray | None = None, non_blocking: bool = False
    ) -> Any:
        self.counts.downloads += 1
        self.counts.downloaded += array.nbytes
        with self._using(self.index_of(array)):
            point = self.begin("download", (array._memory,), ())
            late = non_blocking and out is not None and self.is_pinned(out)
            values = array._hidden.copy()
            out = np.empty(array.shape, array.dtype) if out is None else out
            if not late:
                self.counts.blocking += 1
                self.wait_for(self.current_stream().clock, "download")
                out[...] = values
                return out
            poison(out)

            def arrive(out: np.ndarray = out) -> None:
                out[...] = values

            self._deferred.append((point, arrive))
            return out

    def move(self, array: Any, index: int) -> Any:
        self.counts.moves += 1
        self.counts.moved += array.nbytes
        source = self.index_of(array)
        event = self.event()
        with self._using(source):
            self.begin("move", (array._memory,), ())
            event.record(self.current_stream())
        with self._using(index):
            self.current_stream().wait_event(event)
            owner = np.array(array._hidden, order="C", copy=True)
            moved = StrictArray(owner, self.new_memory(owner, self.begin("move", (), ())))
            event.record(self.current_stream())
        with self._using(source):
            self.current_stream().wait_event(event)
        return moved

    def pinned(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        made = np.empty(shape, dtype)
        self._pinned.append(made)
        return made

    def is_pinned(self, host: np.ndarray) -> bool:
        return any(np.may_share_memory(host, p) for p in self._pinned)

    def memory_stats(self, index: int) -> dict[str, int]:
        ledger = self.ledgers[index]
        return {
            "allocated": ledger.allocated, "reserved": ledger.reserved,
            "peak_allocated": ledger.peak, "peak_reserved": ledger.peak_reserved,
            "free": ledger.total - ledger.reserved, "total": ledger.total,
            "allocations": ledger.allocations,
        }  # fmt: skip

    def reset_peak(self, index: int) -> None:
        ledger = self.ledgers[index]
        ledger.peak, ledger.peak_reserved = ledger.allocated, ledger.reserved

    def empty_cache(self) -> None:
        for ledger in self.ledgers:
            ledger.reserved = ledger.allocated

    # -- work ---------------------------------------------------------------------------------

    def launch(self, kernel: Any, args: tuple) -> None:
        self.counts.launches += 1
        launch(self, kernel, args)

    def run_code(self, code: Any, args: tuple) -> None:
        self.counts.codes += 1
        run_code(self, code, args)

    def owner(self, array: Any) -> Any:
        memory = array._memory
        return array if array._hidden is memory.owner else StrictArray(memory.owner, memory)

    def matmul(self, a: Any, b: Any, out: Any = None, add: bool = False) -> Any:
        return matmul(self, a, b, out, add)

    def special(self, name: str) -> Callable[..., Any]:
        return special(self, name)

    def collectives(self) -> Any:
        return super().collectives() if self.binding is None else self.binding

    def _new_stream(self, index: int, priority: int) -> DoubleStream:
        made = DoubleStream(self, index, priority, len(self._streams) + 1)
        self._streams.append(made)
        return made

    def stream(self, index: int, priority: int = 0) -> Stream:
        with self._lock:
            return self._new_stream(index, priority)

    def current_stream(self, index: int | None = None) -> DoubleStream:
        index = self._here.index if index is None else index
        return self._here.streams.get(index) or self._defaults[index]

    def default_stream(self, index: int) -> Stream:
        return self._defaults[index]

    @contextlib.contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        assert isinstance(stream, DoubleStream)
        before = self._here.streams.get(stream.index)
        with self._using(stream.index):
            self._here.streams[stream.index] = stream
            try:
                yield
            finally:
                self._here.streams.pop(stream.index)
                if before is not None:
                    self._here.streams[stream.index] = before

    def go_on(self, stream: Stream) -> None:
        assert isinstance(stream, DoubleStream)
        self._here.index = stream.index
        self._here.streams[stream.index] = stream

    @contextlib.contextmanager
    def _using(self, index: int) -> Iterator[None]:
        before = self._here.index
        self.use(index)
        try:
            yield
        finally:
            self._here.index = before

    def event(
        self, timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> Event:
        return DoubleEvent(self, timing)

    def record_use(self, array: Any, stream: Stream) -> None:
        assert isinstance(stream, DoubleStream)
        array._memory.told.add(stream.id)

    # -- graphs ---------------------------------------------------------------------------------

    def graph_pool(self) -> GraphPool:
        return GraphPool()

    def graph(self, pool: GraphPool | None = None, stream: Stream | None = None) -> Graph:
        where = self.stream(self.current()) if stream is None else stream
        return DoubleGraph(self, self.graph_pool() if pool is None else pool, where)

    def capturing(self) -> bool:
        return self._here.recording is not None

    def synchronize(self, index: int | None = None) -> None:
        index = self._here.index if index is None else index
        clock = Clock()
        for stream in self._streams:
            if stream.index == index:
                clock.merge(stream.clock)
        self.wait_for(clock, f"device {index}")
