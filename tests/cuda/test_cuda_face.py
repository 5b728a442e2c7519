"""``dt.cuda`` on the device double: devices, streams, events, memory, random numbers."""

import subprocess
import sys

import pytest

import disttrain as dt
from disttrain import cuda
from disttrain.errors import DeviceError


def test_without_a_device_questions_answer_and_work_says_what_is_missing():
    assert not cuda.is_available() and cuda.device_count() == 0 and not cuda.is_initialized()
    assert cuda.memory_allocated() == cuda.max_memory_reserved() == 0 and cuda.memory_stats() == {}
    assert cuda.get_rng_state_all() == [] and cuda.get_arch_list() == []
    assert not cuda.is_bf16_supported() and not cuda.is_tf32_supported()
    cuda.manual_seed(1), cuda.manual_seed_all(1), cuda.empty_cache(), cuda.ipc_collect()
    for needs in (cuda.synchronize, cuda.Stream, cuda.Event, cuda.current_device, cuda.init):
        with pytest.raises(DeviceError, match="driver"):
            needs()


def test_importing_it_loads_nothing_big():
    program = (
        "import sys, disttrain as dt; dt.cuda.is_available(); dt.cuda.manual_seed(3)\n"
        "assert not {m.split('.')[0] for m in sys.modules} & {'cupy', 'llvmlite', 'nccl'}"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=50)


def test_devices(double):
    assert cuda.is_available() and cuda.device_count() == 2 and cuda.current_device() == 0
    with cuda.device(1):
        assert cuda.current_device() == 1 and dt.ones(1, device="cuda").device == "cuda:1"
        with cuda.device(None), cuda.device(-1):
            assert cuda.current_device() == 1
        with cuda.device_of(dt.ones(1, device="cuda:0")):
            assert cuda.current_device() == 0
        with cuda.device_of(dt.ones(1)):
            assert cuda.current_device() == 1
    assert cuda.current_device() == 0
    cuda.set_device("cuda:1")
    assert cuda.current_device() == 1
    cuda.set_device(dt.device("cuda", 0)), cuda.set_device(-1)
    assert cuda.current_device() == 0
    assert cuda.get_device_name(1) == "device double" and cuda.get_device_capability() == (9, 0)
    assert cuda.get_device_properties("cuda").total_memory > 0 and cuda.is_bf16_supported(False)
    with pytest.raises(ValueError, match="Expected a cuda device, but got: cpu"):
        cuda.synchronize("cpu")
    with pytest.raises(DeviceError, match="cuda:2: invalid device ordinal"):
        cuda.set_device(2)


def test_streams_and_events(double):
    first, second = cuda.Stream(), cuda.Stream(priority=-1)
    assert first != second and first == first and second.priority == -1
    assert (
        cuda.current_stream() == cuda.default_stream() and cuda.current_stream().device_index == 0
    )
    x = dt.ones(4, device="cuda")
    ready = cuda.current_stream().record_event()
    with cuda.stream(first):
        assert cuda.current_stream() == first
        ready.wait()
        y = x * 2
    second.wait_stream(first)
    with second:
        z = y + 1
    cuda.current_stream().wait_stream(second)
    assert z.tolist() == [3.0] * 4 and cuda.current_stream() == cuda.default_stream()
    with cuda.stream(None):
        assert cuda.current_stream() == cuda.default_stream()
    cuda.set_stream(first)
    assert cuda.current_stream() == first
    cuda.set_stream(cuda.default_stream())
    with cuda.stream(cuda.Stream(device=1)):
        assert cuda.current_device() == 1
    assert cuda.current_device() == 0 and first.query()


def test_events_measure(double):
    begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    assert begin.query() and "uninitialized" in repr(begin)
    begin.record()
    end.record()
    end.synchronize()
    assert end.query() and begin.elapsed_time(end) >= 0 and end.device == "cuda:0"


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


def test_random_numbers(double):
    dt.manual_seed(3)
    assert cuda.initial_seed() == 3 and len(cuda.default_generators) == 2
    states = cuda.get_rng_state_all()
    want = [dt.rand(2, device=d).tolist() for d in ("cuda:0", "cuda:1")]
    cuda.set_rng_state_all(states)
    assert [dt.rand(2, device=d).tolist() for d in ("cuda:0", "cuda:1")] == want
    cuda.manual_seed(5)
    assert cuda.initial_seed() == 5 and cuda.default_generators[1].initial_seed() == 3
    cuda.manual_seed_all(6)
    assert [g.initial_seed() for g in cuda.default_generators] == [6, 6]
    cuda.set_rng_state(states[0], device=1)
    assert cuda.default_generators[1].get_offset() == 0
    cuda.seed(), cuda.seed_all()
    assert cuda.initial_seed() == cuda.default_generators[1].initial_seed()


def test_ranges_for_a_profiler():
    assert cuda.nvtx.range_push("outer") == 0
    with cuda.nvtx.range("step {}", 3):
        cuda.nvtx.mark("here")
    assert cuda.nvtx.range_pop() == 0 and cuda.nvtx.range_pop() == -1
