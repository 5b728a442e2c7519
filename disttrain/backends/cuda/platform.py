"""CUDA devices, over CuPy: the real platform (``backends/device/platform.py`` says what it gives).

CuPy is given to it, so that this file can be tried with a stand-in that has CuPy's signatures.
Serves CuPy's wheels for CUDA 12 and 13. What needs thought is in the files beside this one:
``pool.py``, ``streams.py``, ``transfers.py``, ``graphs.py``, ``launch.py``.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any

import numpy as np

from ...errors import DeviceError
from ..device.platform import Event, Graph, GraphPool, Platform, Stream
from .faults import ABSENT, FORKED, at_start, no_arrays_of
from .graphs import CudaGraph, CudaPool
from .launch import CupyAround, Launcher
from .libraries import cudnn
from .libraries.blas import Blas
from .libraries.dnn import Dnn
from .pool import Memory
from .presence import look, missing_package
from .properties import Properties
from .streams import CudaEvent, CudaStream, On, Streams, waiting
from .transfers import Transfers

_PACKAGE = "cupy"
_BINDING = {"core": "nccl.core", "raw": "nccl.bindings.nccl"}  # of nccl4py


def start() -> Platform:
    """CUDA as this machine has it. Raises ``DeviceError``, which says what is missing."""
    seen = look()
    if seen.sure and not seen.count:
        raise DeviceError(f"{ABSENT}: {seen.why}")
    try:
        cupy = importlib.import_module(_PACKAGE)
    except ImportError as error:
        raise DeviceError(f"{ABSENT}: {missing_package()}. ({error})") from error
    return CudaPlatform(cupy)


class CudaPlatform(Platform):
    """``xp``: CuPy."""

    kind = "cuda"
    packages = ("cupy", "cupyx", "cupy_backends", "cuda", "nccl", "nvidia")

    def __init__(self, cupy: Any) -> None:
        cuda = cupy.cuda
        self.xp, self.cuda, self.runtime = cupy, cuda, cuda.runtime
        self.array_type = cupy.ndarray
        try:
            self._count = cuda.runtime.getDeviceCount()
        except cuda.runtime.CUDARuntimeError as error:
            raise at_start(error, cuda.runtime) from error
        self.memory = Memory(cuda, self._count)
        self.streams = Streams(cuda)
        self.transfers = Transfers(cupy, self.streams)
        self.launcher = Launcher(CupyAround(cupy))
        cuda.set_allocator(self.memory.malloc)
        os.register_at_fork(after_in_child=functools.partial(_forked, self))

    # -- devices ------------------------------------------------------------------------------

    def count(self) -> int:
        return self._count

    def current(self) -> int:
        return self.runtime.getDevice()

    def use(self, index: int) -> None:
        self.runtime.setDevice(index)

    def index_of(self, array: Any) -> int:
        return array.data.device_id

    def properties(self, index: int) -> Properties:
        return Properties.of(self.runtime, index)

    def can_access(self, index: int, other: int) -> bool:
        return bool(self.runtime.deviceCanAccessPeer(index, other))

    def versions(self) -> dict[str, str]:
        numbers = {
            "runtime": self.runtime.runtimeGetVersion(),
            "driver": self.runtime.driverGetVersion(),
        }
        return {k: f"{v // 1000}.{v % 1000 // 10}" for k, v in numbers.items()}

    # -- memory and transfers -----------------------------------------------------------------

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        try:
            return self.array_type(shape, dtype)
        except ValueError as error:
            raise no_arrays_of(dtype) from error

    def upload(self, host: np.ndarray, index: int, non_blocking: bool = False) -> Any:
        return self.transfers.upload(host, index, non_blocking)

    def download(
        self, array: object, out: np.ndarray | None = None, non_blocking: bool = False
    ) -> Any:
        return self.transfers.download(array, out, non_blocking)

    def move(self, array: object, index: int) -> Any:
        return self.transfers.move(array, index)

    def pinned(self, shape: tuple[int, ...], dtype: object) -> np.ndarray:
        return self.transfers.pinned(shape, dtype)

    def is_pinned(self, host: np.ndarray) -> bool:
        return self.transfers.is_pinned(host)

    def memory_stats(self, index: int) -> dict[str, int]:
        return self.memory.stats(index)

    def reset_peak(self, index: int) -> None:
        self.memory.reset_peak(index)

    def empty_cache(self) -> None:
        self.memory.empty_cache()

    def limit_memory(self, index: int, fraction: float) -> None:
        self.memory.limit(index, fraction)

    # -- work ---------------------------------------------------------------------------------

    @functools.cached_property
    def blas(self) -> Blas:
        return Blas(self.xp)

    def matmul(self, a: object, b: object, out: object = None, add: bool = False) -> Any:
        return self.blas.matmul(a, b, out, add)

    @functools.cached_property
    def dnn(self) -> Dnn | None:
        lib = cudnn.library()
        return None if lib is None else Dnn(self.xp, lib)

    def convolve(
        self,
        kind: str,
        x: object,
        w: object,
        y: object,
        stride: tuple,
        padding: tuple,
        dilation: tuple,
    ) -> bool:
        dnn = self.dnn
        return dnn is not None and dnn.conv(kind, x, w, y, stride, padding, dilation)

    def checked(self) -> AbstractContextManager[Any]:
        return importlib.import_module("cupyx").errstate(linalg="raise")

    def special(self, name: str) -> Any:
        return getattr(importlib.import_module("cupyx.scipy.special"), name)

    def launch(self, kernel: Any, args: tuple) -> None:
        self.launcher.launch(kernel, args)

    def launch_many(self, kernel: Any, sets: Sequence[tuple]) -> None:
        self.launcher.launch_many(kernel, sets)

    def run_code(self, code: Any, args: tuple) -> None:
        self.launcher.run_code(code, args)

    def stream(self, index: int, priority: int = 0) -> CudaStream:
        return self.streams.new(index, priority)

    def external_stream(self, handle: int, index: int) -> CudaStream:
        return self.streams.external(handle, index)

    def current_stream(self, index: int | None = None) -> CudaStream:
        return self.streams.current(self.runtime.getDevice() if index is None else index)

    def default_stream(self, index: int) -> CudaStream:
        return self.streams.default(index)

    def on(self, stream: Stream) -> AbstractContextManager[None]:
        return On(self.cuda, stream)

    def go_on(self, stream: Stream) -> None:
        self.runtime.setDevice(stream.index)
        stream.raw.use()  # type: ignore[attr-defined]

    def event(
        self, timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> Event:
        return CudaEvent(self.cuda, timing, blocking, interprocess)

    def record_use(self, array: Any, stream: Stream) -> None:
        self.memory.use(array.data, stream)

    def synchronize(self, index: int | None = None) -> None:
        here = self.runtime.getDevice() if index is None else index
        with waiting(self.cuda), self.cuda.Device(here):
            self.runtime.deviceSynchronize()

    # -- graphs; a profiler's time line ---------------------------------------------------------

    def graph(self, pool: GraphPool | None = None, stream: Stream | None = None) -> Graph:
        own = CudaPool(self.memory) if pool is None else pool
        where = self.stream(self.current()) if stream is None else stream
        return CudaGraph(self.cuda, self.memory, own, where)  # type: ignore[arg-type]

    def graph_pool(self) -> GraphPool:
        return CudaPool(self.memory)

    def collectives(self) -> Any:
        try:
            found = {part: importlib.import_module(name) for part, name in _BINDING.items()}
            found["raw"].get_version()  # loads the library
        except (ImportError, RuntimeError) as error:
            raise DeviceError(
                "NCCL is missing: needed are the packages nccl4py and nvidia-nccl-cu13 (or -cu12); "
                f"pip install 'disttrain[cuda13]' (or [cuda12]). ({error})"
            ) from error
        return SimpleNamespace(**found)

    def capturing(self) -> bool:
        return self.cuda.get_current_stream().is_capturing()

    def note(self, text: str | None) -> None:
        if text is None:
            self.cuda.nvtx.RangePop()
        else:
            self.cuda.nvtx.RangePush(text)


def _forked(platform: CudaPlatform) -> None:
    """In a child: nothing of CUDA can be used any more, and says so."""
    platform.__class__ = _After


class _After(CudaPlatform):
    """What is left of a platform in a forked process."""

    def _refuse(self, *args: object, **kwargs: object) -> Any:
        raise DeviceError(f"cuda: {FORKED}")

    current = use = properties = can_access = empty = upload = download = move = _refuse
    pinned = memory_stats = reset_peak = empty_cache = limit_memory = launch = launch_many = _refuse
    stream = external_stream = current_stream = on = go_on = event = synchronize = graph = _refuse
    run_code = convolve = _refuse
    default_stream = record_use = graph_pool = capturing = note = versions = matmul = _refuse

    def is_pinned(self, host: np.ndarray) -> bool:
        return False
