"""What ``CudaPlatform`` asks of CuPy, without a device: the names and arguments of CuPy 14.2
(``RECORDED``), memory in numpy's arrays, streams whose work is done when a test says so.

``tests/backends/cuda/test_platform.py`` holds ``RECORDED`` against CuPy where that is
installed, and this file against it everywhere.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from types import SimpleNamespace

import numpy as np

# Arguments by position; "=" where there is a default.
RECORDED = {
    "Device": "device=", "Device.use": "", "Event": "block= disable_timing= interprocess=",
    "Event.record": "stream=", "Event.synchronize": "",
    "Stream": "null= non_blocking= ptds= priority=", "Stream.use": "", "Stream.synchronize": "",
    "Stream.wait_event": "event", "Stream.begin_capture": "mode=", "Stream.end_capture": "",
    "Stream.is_capturing": "", "Stream.from_external": "obj", "get_current_stream": "device_id=",
    "get_elapsed_time": "start_event end_event", "alloc_pinned_memory": "size", "alloc": "size",
    "set_allocator": "allocator=", "using_allocator": "allocator=", "MemoryPool": "allocator=",
    "MemoryPool.malloc": "size", "MemoryPool.free_all_blocks": "stream=",
    "MemoryPool.total_bytes": "", "MemoryPool.set_limit": "size= fraction=", "Memory": "size",
    "MemoryPointer": "mem offset", "UnownedMemory": "ptr size owner device_id=",
    "memory.OutOfMemoryError": "size total limit=", "pinned_memory.is_memory_pinned": "data",
    "runtime.getDevice": "", "runtime.setDevice": "device", "runtime.getDeviceCount": "",
    "runtime.getDeviceProperties": "device", "runtime.deviceGetAttribute": "attrib device",
    "runtime.deviceCanAccessPeer": "device peerDevice",
    "runtime.deviceEnablePeerAccess": "peerDevice", "runtime.deviceSynchronize": "",
    "runtime.memGetInfo": "", "runtime.runtimeGetVersion": "", "runtime.driverGetVersion": "",
    "runtime.memcpyPeerAsync": "dst dstDevice src srcDevice size stream",
    "runtime.CUDARuntimeError": "status", "Graph.launch": "stream=",
    "Graph.debug_dot_str": "flags=", "nvtx.RangePush": "message id_color=", "nvtx.RangePop": "",
}  # fmt: skip
GIB = 1 << 30


class CUDARuntimeError(RuntimeError):
    def __init__(self, status):
        self.status = status
        super().__init__(f"cudaError{status}: of the stand-in")


class OutOfMemoryError(MemoryError):
    def __init__(self, size, total, limit=0):
        super().__init__(f"Out of memory allocating {size} bytes")


class Cuda:
    """``cupy.cuda``. ``log``: what streams were given; ``busy``: streams whose work is not done;
    ``fail``: a status that every question to the runtime ends with."""

    def __init__(self, devices=2, total=GIB, fail=None, driver=13000):
        self.devices, self.total, self.fail, self.driver = devices, total, fail, driver
        self.log, self.busy, self.peers = [], set(), set()
        self.here = threading.local()
        self.bytes = [0] * devices
        self._numbers = itertools.count(0x1000, 0x1000)
        self.ends = {}  # memory by address
        self.allocator = None
        self._fill()

    def _fill(self):
        cuda = self
        numbers = self._numbers

        class Device:
            def __init__(self, device=None):
                self.id = cuda.runtime.getDevice() if device is None else device

            def use(self):
                cuda.runtime.setDevice(self.id)

            def __enter__(self):
                self.before = cuda.runtime.getDevice()
                self.use()

            def __exit__(self, *exc):
                cuda.runtime.setDevice(self.before)

        class Stream:
            def __init__(self, null=False, non_blocking=False, ptds=False, priority=None):
                self.ptr = 0 if null else next(numbers)
                self.device_id = -1 if null else cuda.runtime.getDevice()
                self.priority, self.capturing = priority or 0, False

            @classmethod
            def from_external(cls, obj):
                made = cls()
                made.ptr = obj.__cuda_stream__()[1]
                return made

            done = property(lambda self: self.ptr not in cuda.busy)

            def use(self):
                index = cuda.runtime.getDevice()
                assert self.device_id in (-1, index)
                cuda.streams()[index] = self

            def synchronize(self):
                cuda.log.append(("wait", self.ptr))
                cuda.busy.discard(self.ptr)

            def wait_event(self, event):
                cuda.log.append(("stream waits", self.ptr, event.at))

            def begin_capture(self, mode=None):
                assert self.ptr and mode == cuda.runtime.streamCaptureModeRelaxed
                self.capturing = True

            def end_capture(self):
                self.capturing = False
                return Graph()

            def is_capturing(self):
                return self.capturing

        class Event:
            def __init__(self, block=False, disable_timing=False, interprocess=False):
                self.ptr, self.at = next(numbers), None
                self.timing, self.device_id = not disable_timing, cuda.runtime.getDevice()

            done = property(lambda self: self.at not in cuda.busy)

            def record(self, stream=None):
                assert stream.device_id in (-1, self.device_id)
                self.at = stream.ptr

            def synchronize(self):
                cuda.log.append(("event wait", self.at))
                cuda.busy.discard(self.at)

        class Graph:
            def launch(self, stream=None):
                cuda.log.append(("graph", stream.ptr))

            def debug_dot_str(self, flags=0):
                return "digraph {}"

        class UnownedMemory:
            def __init__(self, ptr, size, owner, device_id=-1):
                self.ptr, self.size, self._owner, self.device_id = ptr, size, owner, device_id

        class Memory:
            def __init__(self, size):
                self.device_id = cuda.runtime.getDevice()
                self.ptr, self.size = next(numbers) << 20, size
                if cuda.bytes[self.device_id] + size > cuda.total:
                    raise CUDARuntimeError(2)
                cuda.bytes[self.device_id] += size

        class MemoryPointer:
            def __init__(self, mem, offset):
                self.mem, self.ptr, self.device_id = mem, mem.ptr + offset, mem.device_id

        class Pooled:
            def __init__(self, pool, memory):
                self.pool, self.memory = pool, memory
                self.ptr, self.size, self.device_id = memory.ptr, memory.size, memory.device_id

            def __del__(self):
                self.pool.free[self.device_id].append(self.memory)

        class MemoryPool:
            def __init__(self, allocator=None):
                self.grow, self.limit = allocator, 0
                self.free = [[] for _ in range(cuda.devices)]
                self.total = [0] * cuda.devices

            def malloc(self, size):
                index = cuda.runtime.getDevice()
                if not size:
                    return MemoryPointer(SimpleNamespace(ptr=0, size=0, device_id=index), 0)
                size = -(-size // 512) * 512
                found = next((m for m in self.free[index] if m.size == size), None)
                if found is not None:
                    self.free[index].remove(found)
                    return MemoryPointer(Pooled(self, found), 0)
                if self.limit and self.total[index] + size > self.limit:
                    raise OutOfMemoryError(size, self.total[index], self.limit)
                self.total[index] += size
                try:
                    found = self.grow(size).mem
                except CUDARuntimeError:
                    self.total[index] -= size
                    raise OutOfMemoryError(size, self.total[index]) from None
                return MemoryPointer(Pooled(self, found), 0)

            def free_all_blocks(self, stream=None):
                index = cuda.runtime.getDevice()
                for memory in self.free[index]:
                    self.total[index] -= memory.size
                    cuda.bytes[index] -= memory.size
                self.free[index].clear()

            def total_bytes(self):
                return self.total[cuda.runtime.getDevice()]

            def set_limit(self, size=None, fraction=None):
                self.limit = int(fraction * cuda.total)

        Stream.null = Stream(null=True)
        self.Device, self.Stream, self.Event, self.Graph = Device, Stream, Event, Graph
        self.UnownedMemory, self.Memory, self.MemoryPool = UnownedMemory, Memory, MemoryPool
        self.MemoryPointer, self.runtime = MemoryPointer, Runtime(self)
        self.memory = SimpleNamespace(OutOfMemoryError=OutOfMemoryError)
        self.pinned = set()
        self.pinned_memory = SimpleNamespace(is_memory_pinned=lambda data: data in self.pinned)
        self.nvtx = SimpleNamespace(
            RangePush=lambda message, id_color=-1: self.log.append(message),
            RangePop=lambda: self.log.append("pop"),
        )

    def streams(self):
        if not hasattr(self.here, "streams"):
            self.here.streams = {}
        return self.here.streams

    def get_current_stream(self, device_id=-1):
        index = self.runtime.getDevice() if device_id < 0 else device_id
        return self.streams().get(index, self.Stream.null)

    def get_elapsed_time(self, start_event, end_event):
        return 1.5

    def alloc_pinned_memory(self, size):
        made = np.zeros(size, np.uint8)
        self.pinned.add(made.ctypes.data)
        return made

    def alloc(self, size):
        return (getattr(self.here, "allocator", None) or self.allocator)(size)

    def set_allocator(self, allocator=None):
        self.allocator = allocator

    @contextlib.contextmanager
    def using_allocator(self, allocator=None):
        before, self.here.allocator = getattr(self.here, "allocator", None), allocator
        yield
        self.here.allocator = before


class Runtime:
    """``cupy.cuda.runtime``."""

    CUDARuntimeError = CUDARuntimeError
    streamCaptureModeRelaxed = 2

    def __init__(self, cuda):
        self.cuda = cuda

    def getDeviceCount(self):
        if self.cuda.fail:
            raise CUDARuntimeError(self.cuda.fail)
        return self.cuda.devices

    def getDevice(self):
        return getattr(self.cuda.here, "index", 0)

    def setDevice(self, device):
        self.cuda.here.index = device

    def getDeviceProperties(self, device):
        return {"name": b"stand-in", "major": 9, "minor": 0, "totalGlobalMem": self.cuda.total,
                "multiProcessorCount": 4, "uuid": bytes(range(16))}  # fmt: skip

    def deviceGetAttribute(self, attrib, device):
        return 7

    def deviceCanAccessPeer(self, device, peerDevice):
        return 1

    def deviceEnablePeerAccess(self, peerDevice):
        pair = (self.getDevice(), peerDevice)
        if pair in self.cuda.peers:
            raise CUDARuntimeError(704)
        self.cuda.peers.add(pair)

    def deviceSynchronize(self):
        if self.cuda.fail:
            raise CUDARuntimeError(self.cuda.fail)
        self.cuda.busy.clear()

    def memGetInfo(self):
        return self.cuda.total - self.cuda.bytes[self.getDevice()], self.cuda.total

    def memcpyPeerAsync(self, dst, dstDevice, src, srcDevice, size, stream):
        self.cuda.log.append(("peer", dstDevice, srcDevice, size))

    def runtimeGetVersion(self):
        return 13000

    def driverGetVersion(self):
        return self.cuda.driver

    def ipcGetEventHandle(self, event):
        return bytes(64)


class Cupy:
    """``cupy``: its arrays have values of numpy's behind them."""

    def __init__(self, **settings):
        self.cuda = cuda = Cuda(**settings)

        class ndarray:
            def __init__(self, shape, dtype=float, memptr=None, strides=None, order="C"):
                if np.dtype(dtype).name.startswith("float8"):
                    raise ValueError(f"Unsupported dtype {np.dtype(dtype)}")  # CuPy's words
                self.values = np.zeros(shape, dtype, order=order)
                self.data = cuda.alloc(self.values.nbytes)
                self.shape, self.dtype, self.nbytes = shape, self.values.dtype, self.values.nbytes

            def set(self, arr, stream=None):
                assert arr.flags.forc and arr.shape == self.shape
                self.values[...] = arr

            def get(self, stream=None, order="C", out=None, blocking=True):
                cuda.log.append(("get", blocking))
                out = np.empty(self.shape, self.dtype) if out is None else out
                out[...] = self.values
                return out

        self.ndarray = ndarray

    def ascontiguousarray(self, a):
        return a
