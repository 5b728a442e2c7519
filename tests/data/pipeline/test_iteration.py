"""Iterators: positions as data, ends."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.data.pipeline import Pipeline
from disttrain.errors import ConfigError


def rich():
    """Every kind of buffer in one pipeline."""
    return (
        Pipeline.range(40)
        .shuffle(8, seed=2)
        .map(lambda x: (x, f"t{x.item()}"), num_parallel_calls=3)
        .filter(lambda x, t: x % 5 != 0)
        .padded_batch(3)
        .unbatch()
        .group_by_window(lambda x, t: x % 2, lambda k, g: g.batch(2), 2)
        .prefetch(2)
        .repeat(2)
    )


def shown(element):
    x, t = element
    return x.tolist(), list(np.ravel(t))


@pytest.mark.parametrize("count", [0, 1, 7, 15, 16, 17, 31, 32, 33])
def test_a_position_is_saved_and_loaded(tmp_path, count):
    it = iter(rich())
    for _ in range(count):
        try:
            next(it)
        except StopIteration:
            break
    dt.save(it.state_dict(), tmp_path / "state")
    rest = [shown(e) for e in it]
    other = iter(rich())
    other.load_state_dict(dt.load(tmp_path / "state"))
    assert [shown(e) for e in other] == rest


def test_a_failed_call_is_made_again():
    fails = [True]

    def fn(x):
        if x.item() == 2 and fails[0]:
            raise OSError("away")
        return x

    make = lambda: Pipeline.range(6).map(fn, num_parallel_calls=3)
    it = iter(make())
    next(it), next(it)
    state = it.state_dict()
    with pytest.raises(OSError):
        next(it)
    fails[0] = False
    other = iter(make())
    other.load_state_dict(state)
    assert [x.item() for x in other] == [2, 3, 4, 5]


def test_the_seeds_of_passes_to_come_are_part_of_it():
    make = lambda: Pipeline.range(9).shuffle(9, seed=3).repeat(3)
    made = make()
    whole = [x.item() for x in made]
    second = [x.item() for x in made]
    other = make()
    it = iter(make())
    next(it)
    resumed = iter(other)
    resumed.load_state_dict(it.state_dict())
    assert [x.item() for x in resumed] == whole[1:]
    assert [x.item() for x in other] == second


def test_wrong_positions():
    it = iter(Pipeline.range(3))
    for wrong in ({}, {"kind": "else"}, None, [1]):
        with pytest.raises(ConfigError, match="give what state_dict"):
            it.load_state_dict(wrong)
    state = iter(Pipeline.range(3).batch(2)).state_dict()
    with pytest.raises(ConfigError, match="another pipeline"):
        iter(Pipeline.range(3)).load_state_dict(state)


def test_the_end_stays_the_end():
    it = iter(Pipeline.range(1))
    assert [x.item() for x in it] == [0]
    assert list(it) == []
    state = it.state_dict()
    assert state["finished"]
    other = iter(Pipeline.range(1))
    other.load_state_dict(state)
    assert list(other) == []
    it.close()
    it.close()
