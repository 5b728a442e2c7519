"""Streams and events over CuPy's, which a stand-in plays: turns, devices, what errors say."""

from __future__ import annotations

import pytest
from standins.cupy import Cuda, CUDARuntimeError

from disttrain.backends.cuda.streams import POOL, CudaEvent, CudaStream, On, Streams, waiting
from disttrain.errors import DeviceError


def event(cuda, timing=False, interprocess=False):
    return CudaEvent(cuda, timing, False, interprocess)


def test_streams_come_in_turn_from_a_pool_of_each_device_and_priority():
    streams = Streams(Cuda())
    first = [streams.new(0, 0) for _ in range(POOL)]
    assert len({s.handle for s in first}) == POOL
    assert [streams.new(0, 0) for _ in range(3)] == first[:3]
    others = streams.new(1, 0), streams.new(0, -1)
    assert not {s.handle for s in others} & {s.handle for s in first}
    assert (others[0].index, others[1].priority, others[1].raw.priority) == (1, -1, -1)


def test_a_stream_is_made_on_its_device_and_the_thread_s_stays():
    cuda = Cuda()
    made = Streams(cuda).new(1, 0)
    assert made.raw.device_id == 1 and cuda.runtime.getDevice() == 0


def test_streams_are_equal_by_device_and_handle():
    cuda = Cuda()
    streams = Streams(cuda)
    a, null = streams.new(0, 0), cuda.Stream.null
    again = CudaStream(cuda, a.raw, 0)
    assert a == again and hash(a) == hash(again)
    assert CudaStream(cuda, null, 0) != CudaStream(cuda, null, 1)  # each device has its own
    assert a != streams.new(0, 0) and a != a.handle


def test_the_current_stream_is_the_thread_s_inside_a_block_and_goes_back_after_it():
    cuda = Cuda()
    streams = Streams(cuda)
    outer, inner, far = streams.new(0, -1), streams.new(0, 0), streams.new(1, 0)
    assert streams.current(0) == streams.default(0)
    with pytest.raises(KeyError):
        with On(cuda, outer):
            with On(cuda, far):
                assert cuda.runtime.getDevice() == 1 and streams.current(1) == far
                assert streams.current(0) == outer
            assert cuda.runtime.getDevice() == 0 and streams.current(1) == streams.default(1)
            with On(cuda, inner):
                assert streams.current(0) == inner
            assert streams.current(0) == outer and streams.current(0).priority == -1
            raise KeyError
    assert streams.current(0) == streams.default(0)


def test_a_stream_of_other_code_is_taken_by_its_number():
    made = Streams(Cuda()).external(0x777, 1)
    assert (made.handle, made.index) == (0x777, 1)


def test_an_event_is_made_where_it_is_first_recorded_and_stays_there():
    cuda = Cuda()
    streams, mark = Streams(cuda), event(cuda)
    assert mark.handle == 0 and mark.query()
    mark.synchronize()  # nothing was recorded: nothing to wait for
    streams.new(0, 0).wait_event(mark)
    assert cuda.log == []
    mark.record(streams.new(1, 0))
    assert mark.index == 1 and mark.raw.device_id == 1 and mark.handle == mark.raw.ptr
    made = mark.raw
    mark.record(streams.new(1, 0))
    assert mark.raw is made
    with pytest.raises(DeviceError, match="the event is of cuda:1, the stream of cuda:0"):
        mark.record(streams.new(0, 0))


def test_waits_and_questions_go_to_the_raw_ones():
    cuda = Cuda()
    streams, mark = Streams(cuda), event(cuda)
    a, b = streams.new(0, 0), streams.new(0, 0)
    mark.record(a)
    b.wait_event(mark)
    assert cuda.log == [("stream waits", b.handle, a.handle)]
    cuda.busy.add(a.handle)
    assert not a.query() and not mark.query() and b.query()
    a.synchronize()
    assert a.query() and mark.query()


def test_times_need_two_recorded_events_with_timing():
    cuda = Cuda()
    stream = Streams(cuda).new(0, 0)
    timed, other, plain = event(cuda, timing=True), event(cuda, timing=True), event(cuda)
    with pytest.raises(DeviceError, match="must be recorded before"):
        timed.elapsed_time(other)
    for one in (timed, plain):
        one.record(stream)
    with pytest.raises(DeviceError, match="must be recorded before"):
        timed.elapsed_time(other)
    for pair in ((timed, plain), (plain, timed)):
        with pytest.raises(DeviceError, match="enable_timing=True"):
            pair[0].elapsed_time(pair[1])
    other.record(stream)
    assert timed.elapsed_time(other) == 1.5


def test_only_a_recorded_event_between_processes_has_a_handle():
    cuda = Cuda()
    shared, own = event(cuda, interprocess=True), event(cuda)
    for one in (shared, own):
        with pytest.raises(DeviceError, match="interprocess=True"):
            one.ipc_handle()
        one.record(Streams(cuda).new(0, 0))
    assert shared.ipc_handle() == bytes(64)
    with pytest.raises(DeviceError, match="interprocess=True"):
        own.ipc_handle()


def test_errors_of_the_runtime_are_explained_and_others_pass():
    cuda = Cuda()
    with pytest.raises(DeviceError, match="CUDA_LAUNCH_BLOCKING=1") as raised:
        with waiting(cuda):
            raise CUDARuntimeError(700)
    assert isinstance(raised.value.__cause__, CUDARuntimeError)
    with pytest.raises(RuntimeError, match=r"^mine$"):
        with waiting(cuda):
            raise RuntimeError("mine")
