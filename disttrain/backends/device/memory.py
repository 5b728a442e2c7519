"""Where arrays lie, the host or a device, behind one set of verbs for those who keep flat memory.

Buckets, shards and gathered weights are *raw* arrays, which numpy's functions compute with: numpy's
own, or those of a platform, whose module answers numpy's protocols. A ``Memory`` makes them, takes
them out of what a Tensor holds, and says what comes after what: on a device work is only given to
streams, on the host it is done when a call returns, so that marks and lanes are nothing there.

Whoever works on raw arrays of a device does so inside ``here()``. Knows no Tensor and no group.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import numpy as np

from disttrain.backends.device.raw import RawArray

from ..null import NullArray
from .array import DeviceArray
from .platform import Event, Platform, Stream


class Mark:
    """A point in the work that a thread has given."""

    def wait(self) -> None:
        """What the calling thread gives from now on comes after it. The host does not wait."""


class Lane:
    """A line of work beside that of the thread: ``with lane:`` work goes there."""

    def __enter__(self) -> Lane:
        return self

    def __exit__(self, *exc: object) -> None: ...

    def follow(self) -> None:
        """What the lane is given from now on comes after all that the thread has given so far."""

    def after(self, mark: Mark | None) -> None:
        """... after ``mark``."""

    def mark(self) -> Mark:
        """The point after all that the lane was given."""
        return DONE


class Fetched(Protocol):
    """Numbers on their way to the host."""

    def ready(self) -> bool:
        """Whether they are there."""

    def value(self) -> np.ndarray:
        """They; waits for them."""


DONE = Mark()


def lend(
    memory: memoryview, kind: np.dtype, shape: tuple, count: int = -1, offset: int = 0
) -> tuple[np.ndarray, weakref.ref]:
    """An array of ``shape`` in the host's ``memory`` (bytes), to give away, and a reference that is
    dead once nobody has it any more. It has all of the memory, or ``count`` elements from the byte
    ``offset`` on. All that looks into it keeps the array that the reference is of: one without a
    base but memory, which numpy takes as the base of whatever views it."""
    whole = np.frombuffer(memory, kind, count, offset)
    return whole if whole.shape == shape else whole.reshape(shape), weakref.ref(whole)


def bytes_of(array: np.ndarray) -> memoryview:
    """The memory of a contiguous array."""
    return array.reshape(-1).view(np.uint8).data


class Memory:
    """The host's."""

    kind = "cpu"
    index: int | None = None
    on_host = True

    def here(self) -> AbstractContextManager:
        """Inside the block, the thread works on this device."""
        return nullcontext()

    def guarded(self, fn: Callable[..., Any]) -> Any:
        """``fn``, run inside ``here()``."""
        return fn

    def raw(self, array: object) -> Any:
        """The raw array of what a Tensor holds; raw ones come back as they are."""
        return array

    def held(self, raw: object) -> Any:
        """What a Tensor over ``raw`` holds."""
        return raw

    def empty(self, shape: object, dtype: object) -> Any:
        return np.empty(shape, dtype)

    def zeros(self, shape: object, dtype: object) -> Any:
        return np.zeros(shape, dtype)

    def full(self, shape: object, value: object, dtype: object) -> Any:
        return np.full(shape, value, dtype)

    def flat(self, group: Any, numel: int, dtype: object) -> Any:
        """``numel`` elements in memory from which ``group`` moves data best."""
        return group.empty(numel, dtype)

    def take(self, array: np.ndarray) -> Any:
        """A raw array here of the values of one on the host."""
        return array

    def fetch(self, raw: Any) -> Fetched:
        """Begin to copy ``raw`` to the host."""
        return _Here(raw.copy())

    def numbers(self, raw: Any) -> np.ndarray:
        """The values on the host; waits for them."""
        return raw

    def writeable(self, raw: np.ndarray) -> bool:
        return raw.flags.writeable

    def copy_to(self, target: np.ndarray, source: np.ndarray) -> None:
        """Write ``source``, a raw array here or on the host, into ``target``, which is here or on
        the host; types may differ. The host does not wait for copies between pinned memory and a
        device."""
        np.copyto(target, source, casting="unsafe")

    def pinned(self, shape: Any, dtype: Any) -> np.ndarray:
        """Memory of the host from which copies to here need no wait."""
        return np.empty(shape, dtype)

    def lane(self, priority: int = 0) -> Lane:
        return _ALONG

    def mark(self) -> Mark:
        """The point after all that the thread has given here so far."""
        return DONE

    def in_use(self, raw: object) -> None:
        """What the thread was given so far uses ``raw``, which was made in another lane: its memory
        is not given out before that is done."""

    def settle(self) -> None:
        """Wait, on the host, until all that was given here is done."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Memory) and (self.kind, self.index) == (other.kind, other.index)

    def __hash__(self) -> int:
        return hash((self.kind, self.index))

    def __str__(self) -> str:
        return self.kind if self.index is None else f"{self.kind}:{self.index}"


class _Here:
    def __init__(self, found: np.ndarray) -> None:
        self.found = found

    def ready(self) -> bool:
        return True

    def value(self) -> np.ndarray:
        return self.found


_ALONG = Lane()
HOST = Memory()


class DeviceMemory(Memory):
    """That of one device."""

    on_host = False

    def __init__(self, platform: Platform, index: int) -> None:
        self.platform, self.index = platform, index
        self.kind = platform.kind

    def here(self) -> AbstractContextManager:
        if self.platform.current() == self.index:
            return nullcontext()
        return _Using(self.platform, self.index)  # type: ignore[arg-type]

    def guarded(self, fn: Callable[..., Any]) -> Any:
        def inside(*args: object) -> Any:
            with self.here():
                return fn(*args)

        return inside

    def raw(self, array: object) -> Any:
        return array.data if array.__class__ is DeviceArray else array

    def held(self, raw: object) -> Any:
        return DeviceArray(raw, self.platform, self.index)  # type: ignore[arg-type]

    def empty(self, shape: Any, dtype: Any) -> Any:
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        with self.here():
            return self.platform.empty(shape, np.dtype(dtype))

    def zeros(self, shape: object, dtype: object) -> Any:
        return self.full(shape, 0, dtype)

    def full(self, shape: object, value: object, dtype: object) -> Any:
        out = self.empty(shape, dtype)
        with self.here():
            out.fill(value)
        return out

    def flat(self, group: Any, numel: int, dtype: object) -> Any:
        return self.empty(numel, dtype)

    def take(self, array: np.ndarray) -> Any:
        if not isinstance(array, np.ndarray):
            return array
        return self.platform.upload(array, self.index, non_blocking=True)  # type: ignore[arg-type]

    def fetch(self, raw: RawArray) -> Fetched:
        with self.here():
            out = self.platform.pinned(raw.shape, raw.dtype)
            self.platform.download(raw, out, non_blocking=True)
            return _OnItsWay(self._event(), out)

    def numbers(self, raw: object) -> np.ndarray:
        return self.platform.download(raw)

    def writeable(self, raw: object) -> bool:
        return True

    def copy_to(self, target: Any, source: Any) -> None:
        with self.here():
            if isinstance(target, np.ndarray) and isinstance(source, np.ndarray):
                np.copyto(target, source, casting="unsafe")
            elif isinstance(target, np.ndarray):
                kind = target.dtype
                source = source if source.dtype == kind else source.astype(kind)
                self.platform.download(source, target, non_blocking=True)
            else:
                np.copyto(target, self.take(source), casting="unsafe")

    def pinned(self, shape: Any, dtype: Any) -> np.ndarray:
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        return self.platform.pinned(shape, np.dtype(dtype))

    def lane(self, priority: int = 0) -> Lane:
        return _StreamLane(self.platform, self.platform.stream(self.index, priority))  # type: ignore[arg-type]

    def _event(self) -> Event:
        event = self.platform.event()
        event.record(self.platform.current_stream(self.index))
        return event

    def mark(self) -> Mark:
        return _EventMark(self.platform, self.index, self._event())  # type: ignore[arg-type]

    def in_use(self, raw: object) -> None:
        self.platform.record_use(raw, self.platform.current_stream(self.index))

    def settle(self) -> None:
        self.platform.current_stream(self.index).synchronize()


class _Using:
    """Inside the block, the thread's device is another one."""

    __slots__ = ("_before", "_index", "_platform")

    def __init__(self, platform: Platform, index: int) -> None:
        self._platform, self._index = platform, index

    def __enter__(self) -> None:
        self._before = self._platform.current()
        self._platform.use(self._index)

    def __exit__(self, *exc: object) -> None:
        self._platform.use(self._before)


class _EventMark(Mark):
    def __init__(self, platform: Platform, index: int, event: Event) -> None:
        self.platform, self.index, self.event = platform, index, event

    def wait(self) -> None:
        self.platform.current_stream(self.index).wait_event(self.event)


class _StreamLane(Lane):
    def __init__(self, platform: Platform, stream: Stream) -> None:
        self.platform, self.stream = platform, stream
        self._inside: list[AbstractContextManager] = []

    def __enter__(self) -> Lane:
        block = self.platform.on(self.stream)
        block.__enter__()
        self._inside.append(block)
        return self

    def __exit__(self, *exc: object) -> None:
        self._inside.pop().__exit__(*exc)  # type: ignore[arg-type]

    def _after(self, event: Event) -> None:
        self.stream.wait_event(event)

    def follow(self) -> None:
        event = self.platform.event()
        event.record(self.platform.current_stream(self.stream.index))
        self._after(event)

    def after(self, mark: Mark | None) -> None:
        if isinstance(mark, _EventMark):
            self._after(mark.event)

    def mark(self) -> Mark:
        event = self.platform.event()
        event.record(self.stream)
        return _EventMark(self.platform, self.stream.index, event)


class _OnItsWay:
    def __init__(self, event: Event, out: np.ndarray) -> None:
        self.event, self.out = event, out

    def ready(self) -> bool:
        return self.event.query()

    def value(self) -> np.ndarray:
        if not self.event.query():
            self.event.synchronize()
        return self.out


def memory_of(array: object) -> Memory:
    """Where what a Tensor holds lies; the host for what has no numbers. Of a spread array: where
    its part lies."""
    array = getattr(array, "local", array)
    if array.__class__ is DeviceArray:
        return DeviceMemory(array.platform, array.index)
    return HOST


def common(arrays: Any) -> Memory:
    """Where ``arrays`` lie that have numbers, the first of them; the host without any."""
    for array in arrays:
        if getattr(array, "local", array).__class__ is not NullArray:
            return memory_of(array)
    return HOST
