"""Work that is recorded once and then repeated by one call: CUDA graphs, over CuPy's capture.

All memory that is made while work is recorded comes from a pool of the graph's own, which lives as
long as it: the same addresses are used each time. Waiting and copies that the host waits for cannot
be recorded; CUDA refuses them.
"""

from __future__ import annotations

from typing import Any

from ...errors import DeviceError
from ..device.platform import Graph, GraphPool, Stream
from .pool import Memory
from .streams import On, waiting


class CudaPool(GraphPool):
    """Memory that several graphs may share, which are never replayed at once. ``raw``: CuPy's pool,
    made anew where a graph comes after the last one has gone."""

    def __init__(self, memory: Memory) -> None:
        self.memory, self.raw, self.users = memory, None, 0

    def malloc(self, size: int) -> Any:
        return self.memory.take(self.raw, size)

    def enter(self) -> None:
        if self.raw is None:
            self.raw = self.memory.new_pool()
        self.users += 1

    def leave(self) -> None:
        self.users -= 1
        if not self.users:
            self.memory.drop_pool(self.raw)
            self.raw = None


class CudaGraph(Graph):
    """``raw``: CuPy's graph; None before the end of the recording, and after ``reset``.

    Recorded in CUDA's relaxed mode: the graph's pool may have to ask the driver for memory, which
    the stricter modes forbid.
    """

    def __init__(self, cuda: Any, memory: Memory, pool: CudaPool, stream: Stream) -> None:
        self.cuda, self.memory, self.stream = cuda, memory, stream
        self.pool: CudaPool = pool
        self.raw: Any = None
        self._inside: list = []
        self._uses = True
        pool.enter()

    def begin(self) -> None:
        inside = [On(self.cuda, self.stream), self.cuda.using_allocator(self.pool.malloc)]
        for block in inside:
            block.__enter__()
        self._inside = inside
        self.memory.recording += 1
        with waiting(self.cuda):
            self.stream.raw.begin_capture(  # type: ignore[attr-defined]
                self.cuda.runtime.streamCaptureModeRelaxed
            )

    def end(self) -> None:
        try:
            with waiting(self.cuda):
                self.raw = self.stream.raw.end_capture()  # type: ignore[attr-defined]
        finally:
            self.memory.recording -= 1
            for block in reversed(self._inside):
                block.__exit__(None, None, None)
            self._inside = []

    def replay(self) -> None:
        if self.raw is None:
            raise DeviceError("CUDAGraph.replay: nothing was recorded; capture something first")
        with waiting(self.cuda):
            self.raw.launch(stream=self.cuda.get_current_stream())

    def reset(self) -> None:
        self.raw = None
        if self._uses:  # also where what was recorded was no graph
            self._uses = False
            self.pool.leave()

    def dot(self) -> str:
        if self.raw is None:
            raise DeviceError("CUDAGraph.debug_dump: nothing was recorded; capture something first")
        return self.raw.debug_dot_str()
