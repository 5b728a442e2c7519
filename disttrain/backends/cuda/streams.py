"""Streams and events of CUDA, over CuPy's. Knows no array.

Streams are never destroyed: like PyTorch's, new ones come in turn from 32 of each device and
priority, so that memory which is kept per stream is not kept for streams that nobody has any more.
"""

from __future__ import annotations

import threading
from typing import Any

from ...errors import DeviceError
from ..device.platform import Event, Stream
from .faults import explained

POOL = 32


class CudaStream(Stream):
    """``raw``: CuPy's stream."""

    __slots__ = ("cuda", "index", "priority", "raw")

    def __init__(self, cuda: Any, raw: Any, index: int, priority: int = 0) -> None:
        self.cuda, self.raw, self.index, self.priority = cuda, raw, index, priority

    @property
    def handle(self) -> int:
        return self.raw.ptr

    def wait_event(self, event: Event) -> None:
        if event.raw is not None:  # type: ignore[attr-defined]
            self.raw.wait_event(event.raw)  # type: ignore[attr-defined]

    def query(self) -> bool:
        with waiting(self.cuda), self.cuda.Device(self.index):
            return self.raw.done

    def synchronize(self) -> None:
        with waiting(self.cuda), self.cuda.Device(self.index):
            self.raw.synchronize()

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, CudaStream)
        return same and (self.index, self.raw.ptr) == (other.index, other.raw.ptr)  # type: ignore

    def __hash__(self) -> int:
        return hash((self.index, self.raw.ptr))


class CudaEvent(Event):
    """Made on the device of the stream that it is first recorded in (``raw``: CuPy's event, None
    before that), as PyTorch's are."""

    __slots__ = ("blocking", "cuda", "index", "interprocess", "raw", "timing")

    def __init__(self, cuda: Any, timing: bool, blocking: bool, interprocess: bool) -> None:
        self.cuda, self.raw, self.index = cuda, None, -1
        self.timing, self.blocking, self.interprocess = timing, blocking, interprocess

    @property
    def handle(self) -> int:
        return 0 if self.raw is None else self.raw.ptr

    def record(self, stream: Stream) -> None:
        with self.cuda.Device(stream.index):
            if self.raw is None:
                self.index = stream.index
                self.raw = self.cuda.Event(
                    block=self.blocking,
                    disable_timing=not self.timing,
                    interprocess=self.interprocess,
                )
            elif stream.index != self.index:
                raise DeviceError(
                    f"Event.record: the event is of cuda:{self.index}, the stream of "
                    f"cuda:{stream.index}; record it in a stream of its own device"
                )
            self.raw.record(stream.raw)  # type: ignore[attr-defined]

    def query(self) -> bool:
        if self.raw is None:
            return True
        with waiting(self.cuda):
            return self.raw.done

    def synchronize(self) -> None:
        if self.raw is not None:
            with waiting(self.cuda):
                self.raw.synchronize()

    def elapsed_time(self, end: Event) -> float:
        if self.raw is None or end.raw is None:
            raise DeviceError(
                "Event.elapsed_time: Both events must be recorded before calculating elapsed time."
            )
        if not (self.timing and end.timing):
            raise DeviceError(
                "Event.elapsed_time: Both events must be created with argument "
                "'enable_timing=True'."
            )
        with waiting(self.cuda):
            return self.cuda.get_elapsed_time(self.raw, end.raw)

    def ipc_handle(self) -> bytes:
        """What another process opens this event by."""
        if not self.interprocess or self.raw is None:
            raise DeviceError(
                "Event.ipc_handle: only an event that was made with interprocess=True, and "
                "recorded, can be handed to another process"
            )
        return self.cuda.runtime.ipcGetEventHandle(self.raw.ptr)


class waiting:  # noqa: N801  (reads as a word of the statement)
    """Errors of the runtime inside the block are said in full."""

    __slots__ = ("cuda",)

    def __init__(self, cuda: Any) -> None:
        self.cuda = cuda

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type | None, error: RuntimeError | None, trace: Any) -> None:
        if kind is not None and issubclass(kind, self.cuda.runtime.CUDARuntimeError):
            raise explained(error) from error


class Streams:
    """All streams of a process."""

    def __init__(self, cuda: Any) -> None:
        self.cuda = cuda
        self._lock = threading.Lock()
        self._made: dict[tuple[int, int], list[CudaStream]] = {}
        self._turn: dict[tuple[int, int], int] = {}

    def new(self, index: int, priority: int) -> CudaStream:
        """The next of those of this device and priority."""
        key = (index, priority)
        with self._lock:
            made = self._made.setdefault(key, [])
            turn = self._turn.get(key, 0)
            self._turn[key] = turn + 1
            if len(made) < POOL:
                with self.cuda.Device(index):
                    raw = self.cuda.Stream(non_blocking=True, priority=priority)
                made.append(CudaStream(self.cuda, raw, index, priority))
            return made[turn % POOL]

    def default(self, index: int) -> CudaStream:
        return CudaStream(self.cuda, self.cuda.Stream.null, index)

    def current(self, index: int) -> CudaStream:
        """The calling thread's."""
        raw = self.cuda.get_current_stream(index)
        if raw.ptr == 0:
            return CudaStream(self.cuda, raw, index)
        return CudaStream(self.cuda, raw, index, raw.priority)

    def external(self, handle: int, index: int) -> CudaStream:
        """A stream that somebody else made and destroys."""
        with self.cuda.Device(index):
            raw = self.cuda.Stream.from_external(_Foreign(handle))
        return CudaStream(self.cuda, raw, index)


class _Foreign:
    """A stream by its number, as CUDA's protocol for handing them on wants it."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


class On:
    """Inside the block the thread's work goes to ``stream``, on its device."""

    def __init__(self, cuda: Any, stream: Any) -> None:
        self.cuda, self.stream = cuda, stream

    def __enter__(self) -> None:
        index = self.stream.index
        self.before = self.cuda.runtime.getDevice()
        self.cuda.runtime.setDevice(index)
        self.prior = self.cuda.get_current_stream(index)
        self.stream.raw.use()

    def __exit__(self, *exc: object) -> None:
        self.cuda.runtime.setDevice(self.stream.index)
        self.prior.use()
        self.cuda.runtime.setDevice(self.before)
