"""CUDA over CuPy, against a stand-in of CuPy whose names and arguments are the real package's."""

import gc
import inspect
import os
import re

import ml_dtypes
import numpy as np
import pytest
from standins.cupy import GIB, RECORDED, CUDARuntimeError, Cupy

from disttrain.backends.cuda import platform as cuda_platform
from disttrain.backends.cuda.faults import at_start, explained
from disttrain.backends.cuda.platform import CudaPlatform
from disttrain.backends.cuda.presence import Presence
from disttrain.errors import DeviceError, DTypeError, OutOfMemoryError


@pytest.fixture
def cupy():
    return Cupy()


@pytest.fixture
def cuda(cupy):
    return CudaPlatform(cupy)


def arguments(f):
    """Names, with "=" where there is a default; from the docstring where there is no more."""
    text = (getattr(f, "__doc__", "") or "").strip().split("\n")[0]
    shown = re.match(r"[\w.]+\((.*)\)( ->.*)?$", text)
    if shown is None:
        found = inspect.signature(f).parameters.values()
        return " ".join(
            p.name + "=" * (p.default is not p.empty) for p in found if p.name != "self"
        )
    parts = [p.strip() for p in shown[1].split(",")]
    names = [
        p.split("=")[0].split()[-1] + "=" * ("=" in p)
        for p in parts
        if p not in ("", "self", "cls")
    ]
    return " ".join(names)


def named(module, name):
    for part in name.split("."):
        module = getattr(module, part)
    if isinstance(module, type) and "(" not in (module.__doc__ or "").strip().split("\n")[0]:
        return module.__init__
    return module


@pytest.mark.parametrize("name", RECORDED)
def test_the_stand_in_has_the_recorded_arguments(cupy, name):
    found = named(cupy.cuda, name)
    assert [a.rstrip("=") for a in arguments(found).split()] == [
        a.rstrip("=") for a in RECORDED[name].split()
    ] or found is object.__init__


def test_the_record_is_cupys():
    real = pytest.importorskip("cupy")
    assert {n: arguments(named(real.cuda, n)) for n in RECORDED} == RECORDED
    assert arguments(real.ndarray.set) == "arr stream="
    assert arguments(real.ndarray.get) == "stream= order= out= blocking="


def test_devices_and_streams(cuda, cupy):
    assert cuda.count() == 2 and cuda.current() == 0
    found = cuda.properties(1)
    assert (found.name, found.major, found.total_memory) == ("stand-in", 9, GIB)
    assert "multi_processor_count=4" in repr(found) and found.L2_cache_size == 0
    side = cuda.stream(1, -1)
    assert side.index == 1 and side.priority == -1 and side.handle == side.raw.ptr
    assert cuda.current_stream() == cuda.default_stream(0) and cuda.current_stream().handle == 0
    with cuda.on(side):
        assert cuda.current() == 1 and cuda.current_stream() == side
    assert cuda.current() == 0 and cuda.current_stream(1) == cuda.default_stream(1)
    cuda.go_on(side)
    assert cuda.current_stream() == side and cuda.current() == 1
    assert len({cuda.stream(0).handle for _ in range(80)}) == 32  # they come in turn
    assert cuda.external_stream(0xABC, 0).handle == 0xABC
    assert cuda.can_access(0, 1) and cuda.versions() == {"runtime": "13.0", "driver": "13.0"}


def test_events(cuda, cupy):
    first, side = cuda.event(timing=True), cuda.stream(0)
    assert first.query() and first.handle == 0
    first.synchronize(), side.wait_event(first)  # nothing was recorded: nothing to wait for
    first.record(side)
    cupy.cuda.busy.add(side.handle)
    assert not first.query() and not side.query()
    cuda.default_stream(0).wait_event(first)
    assert cupy.cuda.log[-1] == ("stream waits", 0, side.handle)
    first.synchronize()
    assert first.query() and side.query()
    with pytest.raises(DeviceError, match="of its own device"):
        first.record(cuda.stream(1))
    with pytest.raises(DeviceError, match="must be recorded"):
        first.elapsed_time(cuda.event(timing=True))
    second = cuda.event()
    second.record(side)
    with pytest.raises(DeviceError, match="enable_timing=True"):
        first.elapsed_time(second)
    with pytest.raises(DeviceError, match="interprocess"):
        second.ipc_handle()


def test_memory_is_counted(cuda):
    x = cuda.empty((1000,), np.float32)
    assert cuda.memory_stats(0)["allocated"] == 4096 and cuda.memory_stats(1)["allocated"] == 0
    y = cuda.empty((1000,), np.float32)
    del x
    found = cuda.memory_stats(0)
    assert (found["allocated"], found["peak_allocated"], found["reserved"]) == (4096, 8192, 8192)
    assert (found["allocations"], found["frees"], found["segments"]) == (2, 1, 2)
    z = cuda.empty((1000,), np.float32)
    assert cuda.memory_stats(0)["segments"] == 2  # given out again
    del y, z
    cuda.reset_peak(0)
    assert cuda.memory_stats(0)["peak_allocated"] == 0
    cuda.empty_cache()
    found = cuda.memory_stats(0)
    assert found["reserved"] == 0 and found["free"] == found["total"] == GIB


def test_memory_waits_for_the_streams_that_use_it(cuda, cupy):
    side = cuda.stream(0)
    x = cuda.empty((128,), np.float32)
    where = x.data.ptr
    cuda.record_use(x, side)
    cupy.cuda.busy.add(side.handle)
    del x
    assert cuda.memory_stats(0)["allocated"] == 0
    y = cuda.empty((128,), np.float32)
    assert y.data.ptr != where
    cupy.cuda.busy.clear()
    assert cuda.empty((128,), np.float32).data.ptr == where


def test_no_room(cupy):
    cuda = CudaPlatform(Cupy(total=1 << 20))
    kept = cuda.empty((1 << 19,), np.uint8)
    spare = cuda.empty((1 << 18,), np.uint8)
    side = cuda.stream(0)
    cuda.record_use(spare, side)
    cuda.cuda.busy.add(side.handle)
    del spare
    whole = cuda.empty((1 << 19,), np.uint8)  # waits for the other stream, and lets go
    assert cuda.memory_stats(0)["retries"] == 1 and ("event wait", side.handle) in cuda.cuda.log
    text = (
        r"CUDA out of memory. Tried to allocate 512.00 KiB. GPU 0 has a total capacity of 1.00 MiB "
        r"of which 0.00 KiB is free. Of the allocated memory 1.00 MiB is allocated by disttrain"
    )
    with pytest.raises(OutOfMemoryError, match=text):
        cuda.empty((1 << 19,), np.uint8)
    assert cuda.memory_stats(0)["failures"] == 1
    del kept, whole
    gc.collect()
    cuda.empty_cache()
    cuda.limit_memory(0, 0.25)
    with pytest.raises(OutOfMemoryError, match=r"256\.00 KiB allowed"):
        cuda.empty((1 << 19,), np.uint8)


def test_transfers(cuda, cupy):
    host = np.arange(6.0).reshape(2, 3)
    x = cuda.upload(host, 1)
    assert cuda.index_of(x) == 1 and cuda.current() == 0 and not cupy.cuda.log
    assert (cuda.download(x) == host).all()
    turned = np.empty((3, 2)).T
    assert cuda.download(x, turned) is turned and (turned == host).all()
    assert (cuda.download(cuda.upload(host.T, 0)) == host.T).all()
    assert (cuda.download(cuda.upload(host[:, ::2], 0)) == host[:, ::2]).all()
    assert cuda.download(cuda.upload(np.zeros((0, 3)), 0)).shape == (0, 3)


def test_types_that_cupy_has_no_arrays_of(cuda):
    kind = np.dtype(ml_dtypes.float8_e4m3fn)
    for ask in (lambda: cuda.empty((2,), kind), lambda: cuda.upload(np.zeros(2, kind), 0)):
        with pytest.raises(DTypeError, match="float8_e4m3fn was asked for; CuPy has none"):
            ask()


def test_pinned_memory_is_kept_while_it_flies(cuda, cupy):
    page = cuda.pinned((2, 3), np.float32)
    assert page.shape == (2, 3) and cuda.is_pinned(page) and not cuda.is_pinned(np.ones(2))
    cuda.upload(page, 0)
    assert cupy.cuda.log == [("wait", 0)]  # the host may write it again
    cupy.cuda.busy.add(0)
    x = cuda.upload(page, 0, non_blocking=True)
    out = cuda.pinned((2, 3), np.float32)
    cuda.download(x, out, non_blocking=True)
    assert cupy.cuda.log[-1] == ("get", False)
    assert len(cuda.transfers._flying) == 2
    cupy.cuda.busy.clear()
    cuda.upload(page, 0, non_blocking=True)
    assert len(cuda.transfers._flying) == 1
    cuda.download(x, np.empty((2, 3), np.float32), non_blocking=True)
    assert cupy.cuda.log[-1] == ("get", True)


def test_from_device_to_device(cuda, cupy):
    x = cuda.upload(np.ones(4, np.float32), 0)
    y = cuda.move(x, 1)
    assert cuda.index_of(y) == 1 and cuda.move(y, 1) is y
    assert cupy.cuda.log == [
        ("stream waits", 0, 0), ("peer", 1, 0, 16), ("stream waits", 0, 0),
    ]  # fmt: skip
    assert cupy.cuda.peers == {(0, 1), (1, 0)}
    cuda.move(y, 0)


def test_graphs(cuda, cupy):
    graph = cuda.graph()
    with pytest.raises(DeviceError, match="nothing was recorded"):
        graph.replay()
    x = cuda.empty((4,), np.float32)
    cuda.record_use(x, cuda.stream(0))
    graph.begin()
    assert cuda.capturing() and cuda.current_stream() == graph.stream
    inside = cuda.empty((4,), np.float32)
    del x  # no event may be recorded now
    assert inside.data.mem.ptr and not cuda.memory.late and len(cuda.memory.unmarked) == 1
    graph.end()
    assert not cuda.capturing() and cuda.current_stream().handle == 0
    del inside
    assert cuda.empty((4,), np.float32).data.ptr  # of the pool for all
    graph.replay()
    assert cupy.cuda.log[-1] == ("graph", 0) and graph.dot() == "digraph {}"
    assert len(cuda.memory.pools) == 2
    graph.reset()
    assert len(cuda.memory.pools) == 1
    again = cuda.graph(graph.pool)  # after the last one has gone
    assert len(cuda.memory.pools) == 2
    again.reset(), again.reset()
    assert len(cuda.memory.pools) == 1
    cuda.note("step"), cuda.note(None)
    assert cupy.cuda.log[-2:] == ["step", "pop"]


def test_what_is_free_in_a_graphs_pool_stays(cuda):
    graph = cuda.graph()
    graph.begin()
    cuda.empty((4,), np.float32)  # gone at once; replays write there
    graph.end()
    cuda.empty((4,), np.float32)
    cuda.empty_cache()
    assert cuda.memory_stats(0)["reserved"] == 512
    graph.reset()
    cuda.empty_cache()
    assert cuda.memory_stats(0)["reserved"] == 0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"fail": 35, "driver": 0}, "no NVIDIA driver"),
        ({"fail": 35, "driver": 12080}, "driver here is for CUDA 12.8, .* needs 13.0"),
        ({"fail": 100}, "sees no NVIDIA device"),
        ({"fail": 803}, "reboot"),
        ({"fail": 3}, "Cannot re-initialize CUDA in forked subprocess"),
    ],
)
def test_why_there_is_none(settings, words, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(DeviceError, match=words):
        CudaPlatform(Cupy(**settings))


def test_errors_that_come_later_are_said_in_full(cuda, cupy):
    cupy.cuda.fail = 700
    with pytest.raises(DeviceError, match="CUDA_LAUNCH_BLOCKING=1"):
        cuda.synchronize()
    assert "nvidia-smi" in str(explained(CUDARuntimeError(46)))
    assert isinstance(at_start(CUDARuntimeError(802), cupy.cuda.runtime), DeviceError)


def test_the_package_is_missing(monkeypatch):
    monkeypatch.setattr(cuda_platform, "look", lambda: Presence(0, sure=False))
    monkeypatch.setattr(cuda_platform, "_PACKAGE", "no_such_package")
    with pytest.raises(DeviceError, match=r"pip install 'disttrain\[cuda13\]'"):
        cuda_platform.start()


def test_a_child_says_that_it_was_forked(cuda):
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            cuda.empty((1,), np.float32)
        except DeviceError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as said:
        assert "Cannot re-initialize CUDA in forked subprocess" in said.read()
    os.waitpid(child, 0)
    assert cuda.empty((1,), np.float32).data.ptr
