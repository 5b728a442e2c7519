"""CUDA over CuPy, against a stand-in of CuPy whose names and arguments are the real package's."""

import inspect
import re

import pytest
from standins.cupy import GIB, RECORDED, Cupy

from disttrain.backends.cuda.platform import CudaPlatform
from disttrain.errors import DeviceError


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
