"""Recorded graphs of the device, and their memory."""

import numpy as np
import pytest
from standins.cupy import Cupy

from disttrain.backends.cuda.platform import CudaPlatform
from disttrain.errors import DeviceError


@pytest.fixture
def cupy():
    return Cupy()


@pytest.fixture
def cuda(cupy):
    return CudaPlatform(cupy)


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
