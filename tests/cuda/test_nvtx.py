"""Ranges that a profiler shows."""

from disttrain import cuda


def test_ranges_for_a_profiler():
    assert cuda.nvtx.range_push("outer") == 0
    with cuda.nvtx.range("step {}", 3):
        cuda.nvtx.mark("here")
    assert cuda.nvtx.range_pop() == 0 and cuda.nvtx.range_pop() == -1
