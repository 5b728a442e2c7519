"""CUDA graphs under PyTorch's names: work that is recorded once and repeated by one call.

    g = CUDAGraph()
    with graph(g):
        out = step(static_input)
    static_input.copy_(batch); g.replay()          # ``out`` has the new values

Tensors that are used inside keep their memory; what the block makes lies in the graph's own. Random
numbers go on from where the generators are at each replay.
"""

from __future__ import annotations

import gc
from typing import Any

from ..backends.device.platform import GraphPool
from ..core.random import Generator
from ..core.recording import Recording
from ..errors import DeviceError
from .devices import synchronize
from .memory import empty_cache
from .streams import Stream
from .which import here, started


class CUDAGraph:
    """See above. ``capture_begin`` to ``capture_end`` is what ``graph`` does."""

    def __init__(self, keep_graph: bool = False) -> None:
        self._recording: Recording | None = None
        self._generators: list[Generator] = []

    def register_generator_state(self, generator: Generator) -> None:
        """Replays will go on from this generator, too. The devices' own need not be told of."""
        self._generators.append(generator)

    def capture_begin(
        self, pool: GraphPool | None = None, capture_error_mode: str = "global"
    ) -> None:
        """From now on what the thread gives to its stream is recorded, not done. ``pool``: memory
        that is shared with other graphs."""
        platform = here()
        if self._recording is not None:
            raise DeviceError("CUDAGraph: this one has captured already; reset() it first")
        line = platform.current_stream()
        if line.handle == platform.default_stream(line.index).handle:
            raise DeviceError(
                "CUDAGraph: CUDA graphs must be captured on a non-default stream. (However, after "
                "capture, it's ok to replay them on the default stream.) Use cuda.graph()"
            )
        self._recording = Recording(platform, line, pool, self._generators)
        self._recording.begin()

    def capture_end(self) -> None:
        """Recording is over."""
        if self._recording is None:
            raise DeviceError("CUDAGraph: capture_end() before capture_begin()")
        self._recording.end()

    def _captured(self, what: str) -> Recording:
        if self._recording is None:
            raise DeviceError(f"CUDAGraph.{what}: Called before a preceding successful capture")
        return self._recording

    def replay(self) -> None:
        """Do it all, on the current stream; the host does not wait."""
        self._captured("replay").replay()

    def reset(self) -> None:
        """Forget it, and let its memory go."""
        if self._recording is not None:
            self._recording.reset()
        self._recording = None

    def pool(self) -> GraphPool:
        """Its memory, for other graphs to share."""
        return self._captured("pool").graph.pool

    def enable_debug_mode(self) -> None:
        """Nothing to do: ``debug_dump`` always works."""

    def debug_dump(self, debug_path: str) -> None:
        """Write what was recorded to a file, in the language of Graphviz."""
        with open(debug_path, "w", encoding="utf-8") as file:
            file.write(self._captured("debug_dump").graph.dot())


class graph:  # noqa: N801  (the field's spelling)
    """The block is recorded in ``cuda_graph``, on ``stream`` (None: one of its own)."""

    def __init__(
        self, cuda_graph: CUDAGraph, pool: GraphPool | None = None, stream: Stream | None = None,
        capture_error_mode: str = "global",
    ) -> None:  # fmt: skip
        self.cuda_graph, self.pool, self.mode = cuda_graph, pool, capture_error_mode
        self.stream = Stream() if stream is None else stream

    def __enter__(self) -> None:
        synchronize()
        gc.collect()
        empty_cache()
        self.stream.__enter__()
        try:
            self.cuda_graph.capture_begin(self.pool, self.mode)
        except BaseException:
            self.stream.__exit__(None, None, None)
            raise

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            self.cuda_graph.capture_end()
        except Exception:
            if kind is None:  # else the block's own error tells more
                raise
        finally:
            self.stream.__exit__(kind, error, trace)
            if kind is not None:
                self.cuda_graph.reset()


def graph_pool_handle() -> GraphPool:
    """Memory for several graphs that are never replayed at once."""
    return here().graph_pool()


def is_current_stream_capturing() -> bool:
    """Whether the calling thread's current stream is being recorded."""
    found = started()
    return found is not None and found.capturing()


__all__ = ["CUDAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing"]
