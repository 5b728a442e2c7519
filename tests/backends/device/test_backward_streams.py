"""The course of a backward pass: which stream and device it is on, and what waits for what."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from standins.device_double.double import StreamRace

from disttrain.backends.device import platform as devices
from disttrain.backends.device.array import DeviceArray, Located
from disttrain.backends.device.backward_streams import Course, kept


def node(stream, on_device=True):
    return SimpleNamespace(stream=stream, on_device=on_device)


@pytest.fixture
def g(double):
    return Located(double, 0).make(lambda xp: xp.zeros(2))


def test_a_node_runs_on_its_stream_after_what_came_before(double, g):
    home, side = double.current_stream(), double.stream(0)
    with Course([double]) as course:
        course.follow(node(side), g)
        assert double.current_stream() is side
        g.data.fill(1)  # which was made on the home stream
        course.follow(node(None), g)  # None: where nobody has told, the default one
        assert double.current_stream() is double.default_stream(0)
        g.data.fill(2)
    assert double.current_stream() is home


def test_without_a_course_the_same_is_a_race(double, g):
    with pytest.raises(StreamRace):
        with double.on(double.stream(0)):
            g.data.fill(1)


def test_afterwards_all_streams_that_were_used_come_after_its_end(double, g):
    sides = [double.stream(0) for _ in range(2)]
    with Course([double]) as course:
        for side in (*sides, sides[0]):
            course.follow(node(side), g)
            g.data.fill(1)
    g.data.fill(2)  # on the home stream
    with pytest.raises(StreamRace):
        with double.on(sides[0]):
            g.data.fill(3)
    assert not double.counts.waits, "the host waits for nothing"


def test_a_stream_that_only_came_by_waits_too(double, g):
    sides = [double.stream(0) for _ in range(2)]
    with Course([double]) as course:
        for side in sides:
            course.follow(node(side), g)
            g.data.fill(1)
    with double.on(sides[0]):
        g.data.fill(2)  # what it is given now comes after the pass, which ended on the other one


def test_a_course_goes_over_devices_and_back_after_an_error(double):
    g = Located(double, 1).make(lambda xp: xp.zeros(2))
    side = double.stream(1)
    with pytest.raises(KeyError):
        with Course([double]) as course:
            course.follow(node(side), [None, g])
            assert double.current() == 1 and double.current_stream() is side
            raise KeyError
    assert double.current() == 0 and double.current_stream(1) is double.default_stream(1)


def test_what_is_not_on_its_devices_changes_nothing(double, g):
    with Course([]) as course:
        course.follow(node(double.stream(0)), g)
        assert double.current_stream() is double.default_stream(0)
    with Course([double]) as course:
        for nothing in (None, 1.0, (), [None]):
            course.follow(node(double.stream(0)), nothing)
        course.follow(node(double.stream(0), on_device=False), g)
        assert double.current_stream() is double.default_stream(0)


def test_the_gradient_may_be_inside_a_tensor(double):
    far = Located(double, 1).make(lambda xp: xp.zeros(1))
    assert far.__class__ is DeviceArray
    with Course([double]) as course:
        course.follow(node(None), SimpleNamespace(array=far))
        assert double.current() == 1
    assert double.current() == 0


def test_another_thread_is_where_this_one_was(double):
    from_here = double.stream(0)
    assert devices.platform("cuda") is double
    double.sided = True
    seen = []
    double.use(1)
    try:
        with double.on(from_here):
            there = kept(lambda: seen.append((double.current(), double.current_stream(0))))
        thread = threading.Thread(target=there)
        thread.start()
        thread.join()
    finally:
        double.use(0)
    assert seen == [(0, from_here)]
