"""``dt.cuda.memory`` on the device double: what is counted, and what another stream uses."""

import pytest

import disttrain as dt
from disttrain import cuda


def test_memory_is_counted(double):
    cuda.empty_cache()
    before = cuda.memory_allocated()
    x = dt.ones(1000, device="cuda")
    assert cuda.memory_allocated() - before >= 4000 and cuda.memory_allocated(1) == 0
    del x
    assert cuda.memory_allocated() == before and cuda.max_memory_allocated() >= before + 4000
    cuda.reset_peak_memory_stats()
    assert cuda.max_memory_allocated() == before
    free, total = cuda.mem_get_info()
    assert 0 < free <= total and cuda.device_memory_used() == total - free
    stats = cuda.memory_stats()
    assert stats["allocated_bytes.all.current"] == before
    assert cuda.memory_stats_as_nested_dict()["allocated_bytes"]["all"]["current"] == before
    table = cuda.memory_summary()
    assert "Allocated memory" in table and len({len(r) for r in table.splitlines()}) == 1
    with pytest.raises(TypeError, match="must be `float`"):
        cuda.set_per_process_memory_fraction(1)
    with pytest.raises(ValueError, match="Allowed range"):
        cuda.set_per_process_memory_fraction(2.0)


def test_memory_that_another_stream_uses(double):
    side = cuda.Stream()
    x = dt.ones(4, device="cuda")
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        y = x + 1
    x.record_stream(side)
    del x
    cuda.current_stream().wait_stream(side)
    assert y.tolist() == [2.0] * 4
    dt.ones(1).record_stream(side)  # of the host: nothing to do
