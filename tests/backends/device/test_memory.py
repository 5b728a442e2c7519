"""Flat memory of the host and of devices by one set of verbs; memory that is lent."""

from __future__ import annotations

import gc
from types import SimpleNamespace

import numpy as np
import pytest
from standins.device_double.double import StreamRace

from disttrain.backends.device.array import DeviceArray
from disttrain.backends.device.memory import (
    HOST,
    DeviceMemory,
    Memory,
    bytes_of,
    common,
    lend,
    memory_of,
)
from disttrain.backends.null import NullArray


def test_lent_memory_is_back_when_the_last_view_is_gone():
    room = memoryview(bytearray(64))
    array, alive = lend(room, np.dtype(np.float32), (2, 3), 6, 8)
    array[...] = np.arange(6).reshape(2, 3)
    assert bytes(room[8:32]) == np.arange(6, dtype=np.float32).tobytes() and not any(room[:8])
    view = array[1:, ::2]
    del array
    gc.collect()
    assert alive() is not None, "a view of it lives"
    assert view.tolist() == [[3, 5]]
    del view
    gc.collect()
    assert alive() is None


def test_all_of_the_memory_is_lent_where_no_count_is_given():
    array, alive = lend(memoryview(bytearray(16)), np.dtype(np.int32), (4,))
    assert array.shape == (4,) and alive() is array


def test_bytes_are_those_of_the_array():
    a = np.array([[1, 2], [3, 4]], np.uint16)
    bytes_of(a)[0] = 9
    assert a[0, 0] == 9 and len(bytes_of(a)) == 8


def test_the_host_makes_takes_and_copies():
    assert HOST.zeros((2,), np.int8).tolist() == [0, 0]
    assert HOST.full((2,), 7, np.int8).tolist() == [7, 7]
    a = np.arange(3.0)
    assert HOST.raw(a) is HOST.held(a) is HOST.take(a) is HOST.numbers(a) is a
    fetched = HOST.fetch(a)
    a[0] = 9
    assert fetched.ready() and fetched.value().tolist() == [0, 1, 2]  # as it was
    narrow = np.zeros(3, np.int32)
    HOST.copy_to(narrow, np.array([1.9, -1.9, 3]))
    assert narrow.tolist() == [1, -1, 3]
    frozen = np.zeros(1)
    frozen.flags.writeable = False
    assert HOST.writeable(a) and not HOST.writeable(frozen)
    HOST.mark().wait()
    with HOST.here(), HOST.lane() as lane:
        lane.follow()
        lane.after(lane.mark())


def test_places_are_equal_by_kind_and_number(double):
    one = DeviceMemory(double, 1)
    assert one == DeviceMemory(double, 1) != DeviceMemory(double, 0)
    assert hash(one) == hash(DeviceMemory(double, 1)) and one != HOST and HOST == Memory()
    assert (str(HOST), str(one)) == ("cpu", "cuda:1")
    assert one != "cuda:1"


def test_where_arrays_lie(double):
    there = DeviceMemory(double, 1)
    array = there.held(there.zeros(2, np.float32))
    assert array.__class__ is DeviceArray and memory_of(array) == there
    assert memory_of(SimpleNamespace(local=array)) == there
    assert memory_of(np.zeros(1)) is HOST and memory_of(NullArray((1,), float)) is HOST
    assert common([NullArray((1,), float), array, np.zeros(1)]) == there
    assert common([np.zeros(1), array]) is HOST
    assert common([]) is HOST and common([NullArray((1,), float)]) is HOST
    assert there.raw(array) is array.data and there.raw(array.data) is array.data


def test_arrays_are_made_on_the_device_and_the_thread_s_stays(double):
    there = DeviceMemory(double, 1)
    made = there.full((2, 2), 3, "float32")
    assert double.index_of(made) == 1 and double.current() == 0
    assert there.numbers(made).tolist() == [[3, 3], [3, 3]]
    assert there.empty(5, np.int8).shape == (5,) and there.writeable(made)
    assert there.guarded(lambda add: double.current() + add)(10) == 11
    assert double.current() == 0
    taken = there.take(np.arange(3.0))
    assert double.index_of(taken) == 1 and there.take(taken) is taken


def test_copies_go_every_way_and_change_types(double):
    there = DeviceMemory(double, 0)
    here, far = np.array([1.5, 2.5]), there.zeros(2, np.float32)
    there.copy_to(far, here)
    assert there.numbers(far).tolist() == [1.5, 2.5]
    back = np.zeros(2, np.int64)
    there.copy_to(back, far)
    assert back.tolist() == [1, 2]
    other = there.zeros(2, np.float64)
    there.copy_to(other, far)
    assert there.numbers(other).tolist() == [1.5, 2.5]
    third = np.zeros(2, np.int8)
    there.copy_to(third, here)
    assert third.tolist() == [1, 2]


def test_fetched_numbers_are_there_once_they_are_asked_for(double):
    there = DeviceMemory(double, 1)
    raw = there.full(2, 5, np.float32)
    double.counts.clear()
    fetched = there.fetch(raw)
    assert not double.counts.waits and not double.counts.blocking
    assert fetched.value().tolist() == [5, 5] and fetched.ready()


def test_lanes_and_marks_order_work(double):
    there = DeviceMemory(double, 0)
    raw, lane = there.zeros(2, np.float32), there.lane()
    with pytest.raises(StreamRace):
        with lane:
            raw.fill(1)  # nothing says that it comes after the zeros
    lane.follow()
    with lane:
        raw.fill(2)
    with pytest.raises(StreamRace):
        raw.fill(3)
    lane.mark().wait()
    raw.fill(4)
    mark, second = there.mark(), there.lane()
    second.after(mark)
    second.after(None)
    with second:
        assert (raw + 1).shape == (2,)
    there.settle()
    assert double.counts.waits
