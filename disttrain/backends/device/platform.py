"""What one kind of accelerator gives: an array module, transfers, streams, kernels, memory.

``backends/cuda/platform.py`` is the one over CuPy; the tests have one that keeps its memory on the
host and refuses what a device could not do. A raw array is one of the platform's ``array_type``: it
has ``shape``, ``dtype``, ``strides``, ``size`` and answers numpy's protocols. Knows no Tensor.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from disttrain.backends.device.raw import RawArray

from ...errors import DeviceError


class Event(ABC):
    """A point in the work of a stream."""

    @abstractmethod
    def record(self, stream: Stream) -> None:
        """Be the point after all that ``stream`` was given so far."""

    @abstractmethod
    def query(self) -> bool:
        """Whether that point is reached; True where nothing was recorded."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait, on the host, until it is."""

    @abstractmethod
    def elapsed_time(self, end: Event) -> float:
        """Milliseconds from this point to ``end``; both were made with ``timing``."""


class Stream(ABC):
    """Work that a device does in order. ``index``: of the device."""

    index: int
    priority: int

    @property
    @abstractmethod
    def handle(self) -> int:
        """The driver's ``CUstream``, as a number."""

    @abstractmethod
    def wait_event(self, event: Event) -> None:
        """What comes later in this stream waits for ``event``; the host does not."""

    @abstractmethod
    def query(self) -> bool:
        """Whether all that it was given is done."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait, on the host, until it is."""


class GraphPool:
    """Memory of graphs: what they made while they were recorded stays where it is."""


class Graph(ABC):
    """Work that was recorded, and can be repeated on the same memory by one call."""

    pool: GraphPool

    @abstractmethod
    def begin(self) -> None:
        """From now on what the thread gives to its stream is recorded, not done."""

    @abstractmethod
    def end(self) -> None:
        """Recording is over."""

    @abstractmethod
    def replay(self) -> None:
        """Do it all, on the calling thread's current stream."""

    @abstractmethod
    def reset(self) -> None:
        """Forget it, and let its memory go."""

    @abstractmethod
    def dot(self) -> str:
        """What was recorded, in the language of Graphviz."""


class Platform(ABC):
    """One kind of accelerator. All methods work on the calling thread's current device unless an
    index is given, and on its current stream."""

    kind: str
    ranks_in_threads = False  # whether ranks that are threads of one process may each have devices
    sided = False  # whether a program has used another stream, or device, than a thread's first one
    xp: Any  # the array module: numpy's names
    array_type: type[RawArray]
    packages: tuple[str, ...] = ()  # names of modules (and what is in them) that work beneath

    # -- devices ------------------------------------------------------------------------------

    @abstractmethod
    def count(self) -> int:
        """How many devices there are."""

    @abstractmethod
    def current(self) -> int:
        """The calling thread's device."""

    @abstractmethod
    def use(self, index: int) -> None:
        """Make this the calling thread's device."""

    @abstractmethod
    def index_of(self, array: object) -> int:
        """The device that a raw array lies on."""

    @abstractmethod
    def properties(self, index: int) -> Any:
        """``name``, ``major``, ``minor``, ``total_memory``, ``multi_processor_count`` ..., by
        PyTorch's names."""

    # -- memory and transfers -----------------------------------------------------------------

    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: object) -> Any:
        """A raw array that holds anything."""

    @abstractmethod
    def upload(self, host: np.ndarray, index: int, non_blocking: bool = False) -> Any:
        """A raw array on device ``index`` of the values of ``host``. With ``non_blocking`` and
        pinned memory the host does not wait."""

    @abstractmethod
    def download(
        self, array: object, out: np.ndarray | None = None, non_blocking: bool = False
    ) -> Any:
        """The values as numpy's array (``out``, where given)."""

    @abstractmethod
    def move(self, array: object, index: int) -> Any:
        """The values on another device."""

    @abstractmethod
    def pinned(self, shape: tuple[int, ...], dtype: object) -> np.ndarray:
        """numpy's array in page-locked memory."""

    @abstractmethod
    def is_pinned(self, host: np.ndarray) -> bool:
        """Whether it lies in such memory."""

    def owner(self, array: Any) -> Any:
        """The raw array that has all the memory which ``array`` lies in. (CuPy's ``as_strided``
        names no base; then it is all that the allocator gave, as bytes.)"""
        array = array if array.base is None else array.base
        at = array.data
        if not array.size or (at.ptr == at.mem.ptr and array.flags.forc):
            return array
        return self.array_type((at.mem.size,), np.uint8, memptr=at - (at.ptr - at.mem.ptr))

    def address(self, array: Any) -> int:
        """Where a raw array begins in its device's memory."""
        return array.data.ptr

    @abstractmethod
    def memory_stats(self, index: int) -> dict[str, int]:
        """Bytes: "allocated", "reserved", "peak_allocated", "peak_reserved", "free", "total"; and
        "allocations", a count."""

    @abstractmethod
    def reset_peak(self, index: int) -> None:
        """Let the peaks be what is there now."""

    @abstractmethod
    def empty_cache(self) -> None:
        """Give memory that nothing uses back to the device."""

    def collectives(self) -> Any:
        """The binding of the library that moves arrays between such devices, by the names of
        nccl4py: ``core`` (its ``nccl.core``) and ``raw`` (``nccl.bindings.nccl``). Raises
        ``DeviceError``, which says what is missing."""
        raise self.without("library that moves arrays between devices")

    # -- work ---------------------------------------------------------------------------------

    @abstractmethod
    def launch(self, kernel: object, args: tuple) -> None:
        """Run a kernel of the kernel language on raw arrays and numbers, as ``Program.slow`` does
        on numpy's. A number may stand for an array that is read element by element, and an array of
        one element for a number, so that the host need not wait for it."""

    def launch_many(self, kernel: object, sets: Sequence[tuple]) -> None:
        """Run a flat kernel on many sets of arguments with the same numbers, in as few launches as
        there can be."""
        for args in sets:
            self.launch(kernel, args)

    @abstractmethod
    def run_code(self, code: object, args: tuple) -> None:
        """Run a kernel that is written for devices (``codes/table.py``): counted random numbers,
        gathering, attention ..."""

    def convolve(
        self,
        kind: str,
        x: RawArray,
        w: RawArray,
        y: RawArray,
        stride: tuple,
        padding: tuple,
        dilation: tuple,
    ) -> bool:
        """Write one of the raw arrays of a convolution of x by w to y, given the others, by a
        library: y ("forward"), x ("input_grad") or w ("weight_grad"). The array that is written
        is contiguous. False where there is no library, or it has no way: nothing was written."""
        return False

    def matmul(self, a: Any, b: Any, out: Any = None, add: bool = False) -> Any:
        """``a (..., m, k) @ b (..., k, n)`` of raw arrays of one type, into ``out`` where given
        (with ``add``: added to what is there), of any strides. Half types are added up in
        float32, and may go to a result of that type."""
        kind = a.dtype
        if kind.itemsize <= 2 and kind.kind in "fV":
            product = self.xp.matmul(a.astype(np.float32), b.astype(np.float32))
        else:
            product = self.xp.matmul(a, b)
        if out is None:
            return product.astype(kind, copy=False)
        if add:
            product = product + out.astype(product.dtype, copy=False)
        out[...] = product.astype(out.dtype, copy=False)
        return out

    def checked(self) -> AbstractContextManager[Any]:
        """Inside the block, decompositions and solutions that cannot be had raise, for which the
        host waits, as PyTorch's does."""
        return nullcontext()

    def special(self, name: str) -> Callable[..., Any]:
        """The function of that name of ``scipy.special``, on raw arrays."""
        raise DeviceError(f"{self.kind}: there is no {name} on this device; use .cpu() first")

    @abstractmethod
    def stream(self, index: int, priority: int = 0) -> Stream:
        """A new stream."""

    @abstractmethod
    def current_stream(self, index: int | None = None) -> Stream:
        """The calling thread's stream on a device."""

    @abstractmethod
    def default_stream(self, index: int) -> Stream:
        """The one that work goes to unless told otherwise."""

    @abstractmethod
    def on(self, stream: Stream) -> AbstractContextManager[None]:
        """Inside the block, the thread's work goes to ``stream``, on its device."""

    @abstractmethod
    def go_on(self, stream: Stream) -> None:
        """From now on the thread's work goes to ``stream``, on its device."""

    @abstractmethod
    def event(
        self, timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> Event:
        """A new event. ``blocking``: who waits for it sleeps; ``interprocess``: other processes may
        wait for it, too."""

    @abstractmethod
    def record_use(self, array: object, stream: Stream) -> None:
        """The memory of ``array`` is not given out again before what ``stream`` was given so far is
        done (PyTorch's ``record_stream``)."""

    @abstractmethod
    def synchronize(self, index: int | None = None) -> None:
        """Wait until a device is done with everything."""

    # -- what not every accelerator has ---------------------------------------------------------

    def external_stream(self, handle: int, index: int) -> Stream:
        """A stream that other code has made, by its number."""
        raise self.without("streams of other code")

    def can_access(self, index: int, other: int) -> bool:
        """Whether device ``index`` reads the memory of ``other`` directly."""
        return False

    def limit_memory(self, index: int, fraction: float) -> None:
        """Let this process use at most this part of a device's memory."""
        raise self.without("limits of memory")

    def graph(self, pool: GraphPool | None = None, stream: Stream | None = None) -> Graph:
        """What ``begin`` to ``end`` is recorded in: in ``stream`` (None: one of its own), with
        memory of ``pool`` (None: of its own), which other graphs may share."""
        raise self.without("graphs")

    def graph_pool(self) -> GraphPool:
        """Memory for several graphs that are never replayed at once."""
        raise self.without("graphs")

    def capturing(self) -> bool:
        """Whether the calling thread's current stream is being recorded."""
        return False

    def note(self, text: str | None) -> None:
        """For a profiler's time line: a range of this name begins (None: the thread's last one
        ends)."""
        return None

    def versions(self) -> dict[str, str]:
        """Of the libraries beneath: "runtime", "driver", ..."""
        return {}

    def without(self, what: str) -> DeviceError:
        return DeviceError(f"{self.kind}: this accelerator has no {what}")


_lock = threading.Lock()
_makers: dict[str, Callable[[], Platform]] = {}
_lookers: dict[str, Callable[[], tuple[int, str] | None]] = {}
_made: dict[str, Platform] = {}
_by_type: dict[type, Platform] = {}
_first: list[Callable[[], object]] = []


def before_first(load: Callable[[], object]) -> None:
    """Call ``load`` once, before the first platform is used: what knows the operations gives them
    their ways on devices then, and programs without a device do not pay for it."""
    _first.append(load)


def offer(
    kind: str,
    make: Callable[[], Platform] | None,
    look: Callable[[], tuple[int, str] | None] | None = None,
) -> tuple[Callable[[], Platform] | None, Callable[[], tuple[int, str] | None] | None]:
    """From now on devices of ``kind`` are made by ``make`` (None: there are none). ``look`` says
    how many there are, and why there are none, without starting anything; None: it cannot tell.
    Returns what was offered before: ``offer(kind, *before)`` offers it again."""
    with _lock:
        old = _made.pop(kind, None)
        if old is not None:
            del _by_type[old.array_type]
        before = _makers.pop(kind, None), _lookers.pop(kind, None)
        if make is not None:
            _makers[kind] = make
            if look is not None:
                _lookers[kind] = look
    return before


def made(kind: str) -> Platform | None:
    """The platform of ``kind``, if something has used it before."""
    return _made.get(kind)


def present(kind: str) -> tuple[int, str]:
    """How many devices of ``kind`` can be used here, and if there are none, why. Starts nothing
    where that can be found out so."""
    found = _made.get(kind)
    if found is not None:
        return found.count(), ""
    look = _lookers.get(kind)
    seen = None if look is None else look()
    if seen is not None:
        return seen
    try:
        return platform(kind).count(), ""
    except DeviceError as error:
        return 0, str(error)


def sided() -> list[Platform]:
    """The platforms whose work may lie on several streams or devices of one thread."""
    return [found for found in _made.values() if found.sided]


def offered() -> tuple[str, ...]:
    """The kinds of devices that this process knows how to make, whether or not they are there."""
    return tuple(_makers)


def platform(kind: str) -> Platform:
    """The platform of ``kind``. Raises ``DeviceError``, which says what is missing."""
    found = _made.get(kind)
    if found is None:
        with _lock:
            found = _made.get(kind)
            if found is None:
                make = _makers.get(kind)
                if make is None:
                    raise DeviceError(f"device {kind!r}: there is none of that name")
                found = make()
                while _first:
                    _first.pop()()
                _by_type[found.array_type] = found
                _made[kind] = found
    return found


def beneath(module: str) -> bool:
    """Whether the module of this name works beneath a platform that is in use."""
    return any(
        module == name or module.startswith(f"{name}.")
        for found in tuple(_made.values())
        for name in found.packages
    )


def platform_of(array: object) -> Platform | None:
    """The platform whose raw array this is; None for numpy's and all others."""
    return _by_type.get(array.__class__)
