"""Numbers on their way between the host and CUDA devices, and from one device to another.

A copy that the host does not wait for reads or writes memory of the host later, so that memory is
kept until the copy is done. Knows CuPy's arrays, no Tensor.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .faults import no_arrays_of
from .streams import Streams, waiting


class Transfers:
    def __init__(self, cupy: Any, streams: Streams) -> None:
        self.cupy, self.cuda, self.streams = cupy, cupy.cuda, streams
        self._flying: list[tuple[Any, Any]] = []  # (event, memory of the host)
        self._peers: set[tuple[int, int]] = set()

    def upload(self, host: np.ndarray, index: int, non_blocking: bool) -> Any:
        """On device ``index``, with the layout of ``host`` where that is dense."""
        order = "F" if host.flags.f_contiguous and not host.flags.c_contiguous else "C"
        dense = np.asarray(host, order=order)  # type: ignore[call-overload]
        with self.cuda.Device(index), waiting(self.cuda):
            try:
                array = self.cupy.ndarray(host.shape, host.dtype, order=order)
            except ValueError as error:
                raise no_arrays_of(host.dtype) from error
            if host.size:
                array.set(dense)
                self._after(dense, index, non_blocking)
        return array

    def download(self, array: Any, out: np.ndarray | None, non_blocking: bool) -> np.ndarray:
        index = array.data.device_id
        with waiting(self.cuda):
            if out is None or not out.flags.c_contiguous:
                found = array.get()  # waits
                if out is None:
                    return found
                out[...] = found
                return out
            later = non_blocking and self.is_pinned(out)
            with self.cuda.Device(index):
                array.get(out=out, blocking=not later)
                if later:
                    self._keep(out, index)
        return out

    def _after(self, host: np.ndarray, index: int, non_blocking: bool) -> None:
        """What has to be seen to when a copy from ``host`` was given to the device. Memory that is
        not pinned has been read by now."""
        if self.is_pinned(host):
            if non_blocking:
                self._keep(host, index)
            else:
                self.cuda.get_current_stream().synchronize()

    def _keep(self, host: np.ndarray, index: int) -> None:
        self._flying = [(e, kept) for e, kept in self._flying if not e.done]
        event = self.cuda.Event(disable_timing=True)
        event.record(self.cuda.get_current_stream(index))
        self._flying.append((event, host))

    def pinned(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        kind = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        with waiting(self.cuda):
            memory = self.cuda.alloc_pinned_memory(size)
        return np.frombuffer(memory, np.uint8, size).view(kind).reshape(shape)

    def is_pinned(self, host: np.ndarray) -> bool:
        return bool(host.size) and self.cuda.pinned_memory.is_memory_pinned(host.ctypes.data)

    def move(self, array: Any, index: int) -> Any:
        """On the source's stream, before which the target's is waited for, and which it waits for
        afterwards: so both see the copy in order."""
        before = array.data.device_id
        if before == index:
            return array
        self._meet(before, index)
        source, target = self.streams.current(before), self.streams.current(index)
        with self.cuda.Device(before):
            dense = self.cupy.ascontiguousarray(array)
        with self.cuda.Device(index):
            out = self.cupy.ndarray(array.shape, array.dtype)
            ready = self.cuda.Event(disable_timing=True)
            ready.record(target.raw)
        source.raw.wait_event(ready)
        with self.cuda.Device(before), waiting(self.cuda):
            self.cuda.runtime.memcpyPeerAsync(
                out.data.ptr, index, dense.data.ptr, before, dense.nbytes, source.handle
            )
            done = self.cuda.Event(disable_timing=True)
            done.record(source.raw)
        target.raw.wait_event(done)
        return out

    def _meet(self, a: int, b: int) -> None:
        """Let two devices read each other's memory directly, if they can."""
        for index, other in ((a, b), (b, a)):
            if (index, other) in self._peers:
                continue
            self._peers.add((index, other))
            runtime = self.cuda.runtime
            if runtime.deviceCanAccessPeer(index, other):
                with self.cuda.Device(index):
                    try:
                        runtime.deviceEnablePeerAccess(other)
                    except runtime.CUDARuntimeError as error:
                        if error.status != _ALREADY:
                            raise


_ALREADY = 704  # cudaErrorPeerAccessAlreadyEnabled
