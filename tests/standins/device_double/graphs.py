"""Graphs of the double: operations are written down while a thread records, and done again, on the
same memory, by each replay. What a recording computes is thrown away: CUDA computes nothing then.
Waiting for the device, and copies that the host waits for, are refused meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from disttrain.backends.device.platform import Graph, GraphPool

from .memory import Memory, poison


class NotWhileRecording(RuntimeError):
    """What cannot be part of a graph was called while one was recorded."""


class DoubleGraph(Graph):
    def __init__(self, platform: Any, pool: GraphPool, stream: Any) -> None:
        self.platform, self.pool, self.stream = platform, pool, stream
        self.steps: list[tuple[Callable[[], Any], Any]] = []
        self.before: dict[int, tuple[Memory, np.ndarray]] = {}
        self.kept: list[Memory] = []  # what it uses
        self.made: list[Memory] = []  # what is its own: it stays where it is
        self.ready = False

    def begin(self) -> None:
        if self.platform._here.recording is not None:
            raise NotWhileRecording("a graph is recorded already on this thread")
        self._block = self.platform.on(self.stream)
        self._block.__enter__()
        self.platform._here.recording = self

    def end(self) -> None:
        self.platform._here.recording = None
        self._block.__exit__(None, None, None)
        for memory, values in self.before.values():
            memory.owner[...] = values
        for _, results in self.steps:
            for array in results:
                array._hidden.flags.c_contiguous and poison(array._hidden)
        for memory in self.made:  # nothing has written it yet
            memory.writer, memory.readers = None, {}
        self.before.clear()
        self.ready = True

    def wrote(self, memories: list[Memory]) -> None:
        """``memories`` are about to be written: what they have now comes back at the end."""
        for memory in memories:
            self.before.setdefault(id(memory), (memory, memory.owner.copy()))

    def did(self, compute: Callable[[], Any], results: list, used: list[Memory]) -> None:
        """``compute()`` gave ``results``, arrays in memory of their own."""
        self.steps.append((compute, results))
        self.kept += [*used, *[a._memory for a in results]]

    def replay(self) -> None:
        if not self.ready:
            raise RuntimeError("CUDAGraph.replay: nothing was recorded; capture something first")
        self.platform.begin("graph", (), list({id(m): m for m in self.kept}.values()))
        for compute, results in self.steps:
            again = compute()
            found = again if isinstance(again, (tuple, list)) else (again,)
            arrays = [r for r in found if isinstance(r, (np.ndarray, np.generic))]
            if results:
                for array, value in zip(results, arrays, strict=True):
                    array._hidden[...] = value

    def reset(self) -> None:
        self.steps, self.kept, self.made, self.ready = [], [], [], False

    def dot(self) -> str:
        return "digraph {}"
