"""Streams and events under PyTorch's names. A stream is work that a device does in order; two have
no order between them but what events give."""

from __future__ import annotations

from threading import get_ident
from typing import Any

from ..backends.device.platform import Event as Point
from ..backends.device.platform import Stream as Line
from ..core.types.device import device as Device
from .which import here, index_of


class Event:
    """A point in a stream's work. ``enable_timing``: it can be measured from; ``blocking``: who
    waits for it sleeps; ``interprocess``: another process may wait for it."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False,
        external: bool = False,
    ) -> None:  # fmt: skip
        self._point: Point = here().event(enable_timing, blocking, interprocess)
        self._index: int | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Be the point after all that ``stream`` (None: the current one) was given so far."""
        line = here().current_stream() if stream is None else stream.line
        self._point.record(line)
        self._index = line.index

    def wait(self, stream: Stream | None = None) -> None:
        """What comes later in ``stream`` (None: the current one) waits for this point."""
        line = here().current_stream() if stream is None else stream.line
        line.wait_event(self._point)

    def query(self) -> bool:
        """Whether the point is reached."""
        return self._point.query()

    def synchronize(self) -> None:
        """Wait until it is."""
        self._point.synchronize()

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this point to ``end_event``'s."""
        return self._point.elapsed_time(end_event._point)

    def ipc_handle(self) -> bytes:
        """What another process opens this event by."""
        return self._point.ipc_handle()  # type: ignore[attr-defined]

    @property
    def device(self) -> Device | None:
        return None if self._index is None else Device("cuda", self._index)

    @property
    def cuda_event(self) -> int:
        """The driver's number of it; 0 before it is recorded."""
        return getattr(self._point, "handle", 0)

    def __repr__(self) -> str:
        return f"<torch.cuda.Event {self.cuda_event:#x}>" if self.cuda_event else (
            "<torch.cuda.Event uninitialized>"
        )  # fmt: skip


class Stream:
    """Work that a device does in order, beside that of other streams. ``device`` None: the current
    one; a lower ``priority`` goes first."""

    line: Line

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        platform = here()
        platform.sided = True
        self.line = platform.stream(index_of(device), priority)
        self._outer: list[tuple[int, Any]] = []

    @classmethod
    def over(cls, line: Line) -> Stream:
        """The stream that a platform calls ``line``."""
        self = Stream.__new__(cls)
        self.line, self._outer = line, []
        return self

    @property
    def device(self) -> Device:
        return Device("cuda", self.line.index)

    @property
    def device_index(self) -> int:
        return self.line.index

    @property
    def priority(self) -> int:
        return self.line.priority

    @property
    def cuda_stream(self) -> int:
        """The driver's number of it."""
        return self.line.handle

    stream_id = native_handle = cuda_stream

    def wait_event(self, event: Event) -> None:
        """What comes later in this stream waits for ``event``; the host does not."""
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        """What comes later in this stream waits for all that ``stream`` was given so far."""
        self.wait_event(stream.record_event())

    def record_event(self, event: Event | None = None) -> Event:
        """The point (None: a new one) after all that this stream was given so far."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def query(self) -> bool:
        """Whether all that it was given is done."""
        return self.line.query()

    def synchronize(self) -> None:
        """Wait until it is."""
        self.line.synchronize()

    def __enter__(self) -> Stream:
        block = here().on(self.line)
        block.__enter__()
        self._outer.append((get_ident(), block))
        return self

    def __exit__(self, *exc: Any) -> None:
        mine = max(i for i, (thread, _) in enumerate(self._outer) if thread == get_ident())
        self._outer.pop(mine)[1].__exit__(*exc)

    def __cuda_stream__(self) -> tuple[int, int]:
        """For libraries that take each other's streams (CUDA's stream protocol, version 0)."""
        return 0, self.line.handle

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.line == other.line

    def __hash__(self) -> int:
        return hash(self.line)

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


class ExternalStream(Stream):
    """A stream that other code has made, and keeps, by its number."""

    def __init__(self, stream_ptr: int, device: Any = None, **kwargs: Any) -> None:
        platform = here()
        platform.sided = True
        self.line = platform.external_stream(stream_ptr, index_of(device))
        self._outer = []


class StreamContext:
    """Inside the block the thread's work goes to ``stream``, on its device (None: no change)."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *exc: Any) -> None:
        if self.stream is not None:
            self.stream.__exit__(*exc)


def stream(stream: Stream | None) -> StreamContext:
    """``with stream(s):`` the thread's work goes to ``s``."""
    return StreamContext(stream)


def set_stream(stream: Stream | None) -> None:
    """From now on the thread's work goes to ``stream``, on its device. Better ``with``."""
    if stream is not None:
        here().go_on(stream.line)


def current_stream(device: object = None) -> Stream:
    """The calling thread's stream on a device."""
    return Stream.over(here().current_stream(index_of(device)))


def default_stream(device: object = None) -> Stream:
    """The one that work goes to unless told otherwise."""
    return Stream.over(here().default_stream(index_of(device)))


def get_stream_from_external(data_ptr: int, device: object = None) -> Stream:
    """A stream that other code has made, by its number."""
    return ExternalStream(data_ptr, device)


__all__ = [
    "Event", "ExternalStream", "Stream", "StreamContext", "current_stream", "default_stream",
    "get_stream_from_external", "set_stream", "stream",
]  # fmt: skip
