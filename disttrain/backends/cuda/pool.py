"""Memory of CUDA devices: what CuPy's pool gives out, counted, and kept while streams use it.

CuPy's pool keeps an arena per stream: memory that the host lets go is given out again at once, but
only to work of the stream that it was made in, which runs after all that used it there. Work of
another stream must be told of (``use``); then the memory goes back when what that stream had at the
time is done, as with PyTorch's ``record_stream``.

Sizes are those of the pool, multiples of 512 bytes, as PyTorch counts them. Knows no array.
"""

from __future__ import annotations

import sys
from typing import Any

from ...errors import OutOfMemoryError

_GIB, _MIB = 1 << 30, 1 << 20


class Book:
    """The counts of one device.

    They change in statements without a call in them, between which Python lets neither another
    thread nor a destructor run: a lock could not be taken in a destructor.
    """

    def __init__(self) -> None:
        self.allocated = self.peak_allocated = self.ever_allocated = 0
        self.allocations = self.frees = 0
        self.peak_reserved = self.segments = self.retries = self.failures = 0


class Memory:
    """The memory of all devices. ``malloc`` is what CuPy's arrays ask."""

    def __init__(self, cuda: Any, count: int) -> None:
        self.cuda = cuda
        self.books = [Book() for _ in range(count)]
        self.limits: list[float | None] = [None] * count
        self.late: list[tuple[list, Any]] = []  # (events, memory that waits for them)
        self.unmarked: list[tuple[Any, set]] = []  # memory that waits for streams, without events
        self.recording = 0  # graphs that are being recorded: events would become part of them
        self._block = _block_class(cuda, self)
        self.pools: list[Any] = []
        self.main = self.new_pool()

    def new_pool(self) -> Any:
        """A pool of its own, for a graph; ``drop_pool`` gives it up."""
        pool = self.cuda.MemoryPool(self._grow)
        self.pools.append(pool)
        return pool

    def drop_pool(self, pool: object) -> None:
        self.pools.remove(pool)

    def malloc(self, size: int) -> Any:
        """Memory of the calling thread's device, for its stream."""
        return self.take(self.main, size)

    def take(self, pool: Any, size: int) -> Any:
        """The same, from ``pool``."""
        if not size:
            return pool.malloc(size)
        if self.late or self.unmarked:
            self.settle()
        try:
            pointer = pool.malloc(size)
        except self.cuda.memory.OutOfMemoryError:
            pointer = self._again(pool, size)
        raw = pointer.mem
        book = self.books[raw.device_id]
        book.allocations += 1
        book.ever_allocated += raw.size
        book.allocated += raw.size
        if book.allocated > book.peak_allocated:
            book.peak_allocated = book.allocated
        block = self._block(raw.ptr, raw.size, raw, raw.device_id)
        return self.cuda.MemoryPointer(block, 0)

    def _grow(self, size: int) -> Any:
        """What the pool calls when it has nothing that fits."""
        pointer = self.cuda.MemoryPointer(self.cuda.Memory(size), 0)
        book = self.books[pointer.device_id]
        book.segments += 1
        book.peak_reserved = max(book.peak_reserved, self._reserved())
        return pointer

    def _again(self, pool: Any, size: int) -> Any:
        """Once more, after all that only waited for other streams has been let go."""
        index = self.cuda.runtime.getDevice()
        self.books[index].retries += 1
        for event in [event for entry in self.late for event in entry[0]]:
            event.synchronize()
        self.settle()
        self.main.free_all_blocks()  # (what is free in a graph's pool, its replays write to)
        try:
            return pool.malloc(size)
        except self.cuda.memory.OutOfMemoryError as error:
            self.books[index].failures += 1
            raise OutOfMemoryError(self._full(index, size)) from error

    def _full(self, index: int, size: int) -> str:
        free, total = self.cuda.runtime.memGetInfo()
        book, reserved = self.books[index], self.reserved(index)
        limit = self.limits[index]
        bound = "" if limit is None else f" {_bytes(int(limit * total))} allowed;"
        return (
            f"CUDA out of memory. Tried to allocate {_bytes(size)}. GPU {index} has a total "
            f"capacity of {_bytes(total)} of which {_bytes(free)} is free.{bound} Of the allocated "
            f"memory {_bytes(book.allocated)} is allocated by disttrain, and "
            f"{_bytes(reserved - book.allocated)} is reserved by disttrain but unallocated. Use "
            "smaller batches, checkpointing or sharding (see docs/strategies.md)"
        )

    # -- memory that other streams use ---------------------------------------------------------

    def use(self, pointer: Any, stream: Any) -> None:
        """``pointer``: of an array; ``stream``: of this package."""
        block: Any = pointer.mem
        if isinstance(block, self._block):
            block.uses = {*(block.uses or ()), stream}

    def wait_for(self, raw: object, streams: set) -> None:
        """Keep ``raw`` until all that ``streams`` have now is done."""
        if self.recording:
            self.unmarked.append((raw, streams))
            return
        events = []
        for stream in streams:
            with self.cuda.Device(stream.index):
                event = self.cuda.Event(disable_timing=True)
                event.record(stream.raw)
                events.append(event)
        self.late.append((events, raw))

    def settle(self) -> None:
        """Let go what no stream uses any more."""
        if self.recording:
            return
        unmarked, self.unmarked = self.unmarked, []
        for entry in unmarked:
            self.wait_for(*entry)
        kept, self.late = self.late, []
        self.late += [entry for entry in kept if not all(event.done for event in entry[0])]

    # -- counts --------------------------------------------------------------------------------

    def reserved(self, index: int) -> int:
        """Bytes that the pools have of a device."""
        with self.cuda.Device(index):
            return self._reserved()

    def _reserved(self) -> int:
        return sum(pool.total_bytes() for pool in self.pools)

    def stats(self, index: int) -> dict[str, int]:
        book, reserved = self.books[index], self.reserved(index)
        with self.cuda.Device(index):
            free, total = self.cuda.runtime.memGetInfo()
        return {
            "allocated": book.allocated,
            "reserved": reserved,
            "peak_allocated": book.peak_allocated,
            "peak_reserved": book.peak_reserved,
            "free": free,
            "total": total,
            "ever_allocated": book.ever_allocated,
            "allocations": book.allocations,
            "frees": book.frees,
            "segments": book.segments,
            "retries": book.retries,
            "failures": book.failures,
        }

    def reset_peak(self, index: int) -> None:
        book = self.books[index]
        book.peak_allocated, book.peak_reserved = book.allocated, self.reserved(index)

    def limit(self, index: int, fraction: float) -> None:
        """At most this part of the device's memory."""
        with self.cuda.Device(index):
            self.main.set_limit(fraction=fraction)
        self.limits[index] = fraction

    def empty_cache(self) -> None:
        """Give what nothing uses back to the devices."""
        self.settle()
        for index, book in enumerate(self.books):
            if book.segments:
                with self.cuda.Device(index):
                    self.main.free_all_blocks()  # (that of graphs, their replays write to)


def _block_class(cuda: Any, memory: Memory) -> Any:
    """The class of pieces of memory: one that counts itself out when it ends."""
    books = memory.books

    class Block(cuda.UnownedMemory):
        """``uses``: other streams that it must outlast."""

        uses: set | None = None

        def __del__(self) -> None:
            book = books[self.device_id]
            book.frees += 1
            book.allocated -= self.size
            if self.uses and not sys.is_finalizing():
                memory.wait_for(self._owner, self.uses)

    return Block


def _bytes(n: int) -> str:
    """As PyTorch writes sizes."""
    if n >= _GIB:
        return f"{n / _GIB:.2f} GiB"
    return f"{n / _MIB:.2f} MiB" if n >= _MIB else f"{n / 1024:.2f} KiB"
