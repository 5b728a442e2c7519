"""Streams of numbers: states that go on, seeds that follow from one seed."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.keyed import philox, streams


@pytest.fixture(autouse=True)
def seeds():
    yield
    streams.begin(None)


def test_a_state_goes_on():
    state, key, counter = streams.advanced([-1, 0, 7], 2)
    assert (key, counter) == (7, (1 << 64) - 1)
    assert state == [511, 1, 7]
    assert streams.signed((1 << 64) - 1) == -1


def test_seeds_follow_from_one():
    one, other = streams.Seeds(3), streams.Seeds(3)
    pairs = [one.pair(None), one.pair(5), one.pair(None)]
    assert pairs == [other.pair(None), other.pair(5), other.pair(None)]
    assert pairs[1] == (3, 5)
    assert streams.Seeds(None).pair(5) == (87654321, 5)
    assert streams.Seeds(0).pair(0) == (0, 2**31 - 1)


def test_an_operation_goes_on_where_it_ended():
    seeds = streams.Seeds(1)
    ask = lambda trial: seeds.drawn((1, 2), "op", philox.uniform, [2], np.float32, trial).tolist()
    first = ask(True)
    assert ask(False) == first
    assert ask(False) != first


def test_numbers_of_two_seeds():
    one = streams.drawn_of([1, 2], philox.uniform, [2, 3], np.float64)
    assert one.shape == (2, 3)
    assert one.tolist() == streams.drawn_of([1, 2], philox.uniform, [2, 3], np.float64).tolist()


def test_seeds_go_on_from_a_state():
    one, other = streams.Seeds(3), streams.Seeds(4)
    one.pair(None)
    other.put(one.state())
    assert one.pair(None) == other.pair(None)
    assert len({*streams.by_chance(), *streams.by_chance()}) == 6


def test_a_stream_keeps_its_state():
    one, other = streams.Stream(state=[0, 0, 3]), streams.Stream(state=[0, 0, 3])
    draw = lambda stream, **how: stream.drawn(philox.uniform, [2], np.float32, **how).tolist()
    draw(one, trial=True)
    first = draw(one)
    assert first == draw(other) != draw(one)
    assert other.taken(2) == (3, 512)
    assert one.get() == other.get() == [1024, 0, 3]
    assert len({tuple(s.get()) for s in one.split(3)}) == 3 and one.get() != other.get()


def test_where_streams_begin():
    make = streams.Stream
    assert make.from_seed(7).get() == make.from_key_counter(0, [7, 0]).get() == [7, 0, 0]
    one = make.from_state((1, 2, 3))
    assert make(one).get() == [1, 2, 3]
    one.reset_from_seed(4)
    assert one.get() == [4, 0, 0]
    assert make.default() is make.default()
    one.as_default()
    assert make.default() is one


def test_seeds_in_force():
    streams.begin(4)
    numbers = lambda: streams.seeds().source(None, "op")(philox.uniform, [2], np.float32).tolist()
    first = [numbers(), numbers()]
    assert first[0] != first[1]
    streams.begin(4)
    assert [numbers(), numbers()] == first
    again = streams.seeds().source(7, "op")
    assert again(philox.uniform, [2], np.float32).tolist() != again(
        philox.uniform, [2], np.float32).tolist()  # fmt: skip
