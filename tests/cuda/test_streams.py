"""``dt.cuda``'s streams and events on the device double."""

import disttrain as dt
from disttrain import cuda


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
