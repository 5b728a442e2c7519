"""The device's memory: counted, waited for, refused."""

import gc

import numpy as np
import pytest
from standins.cupy import GIB, Cupy

from disttrain.backends.cuda.platform import CudaPlatform
from disttrain.errors import OutOfMemoryError


@pytest.fixture
def cupy():
    return Cupy()


@pytest.fixture
def cuda(cupy):
    return CudaPlatform(cupy)


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
