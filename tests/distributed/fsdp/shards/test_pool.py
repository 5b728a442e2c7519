"""Memory that units take turns to use: what serves again, is given up, is awaited."""

from __future__ import annotations

import types

import numpy as np
import pytest

from disttrain.backends.device.memory import HOST
from disttrain.distributed.fsdp.shards import pool as pools
from disttrain.distributed.fsdp.shards.pool import Pool

pytestmark = pytest.mark.simulated

F4, F8 = np.dtype("f4"), np.dtype("f8")


@pytest.fixture
def group():
    """Gives memory, and counts how often."""
    made = []

    def empty(numel, dtype):
        made.append(np.zeros(numel, dtype))
        return made[-1]

    return types.SimpleNamespace(empty=empty, made=made)


def test_one_buffer_serves_units_of_all_sizes_and_types(group):
    pool = Pool()
    pool.reserve(100)
    large = pool.take(HOST, group, 25, F4)
    pool.give(large)
    small = pool.take(HOST, group, 3, F8)
    assert (large.size, small.size, small.dtype) == (25, 3, F8) and np.shares_memory(large, small)
    pool.give(small)
    assert pool.take(HOST, group, 25, F4) is large and len(group.made) == 1  # one object for each


def test_two_at_once_have_memory_of_their_own(group):
    pool = Pool()
    first, second = (pool.take(HOST, group, 4, F4) for _ in range(2))
    assert not np.shares_memory(first, second)
    pool.give(second)
    assert pool.take(HOST, group, 4, F4) is second and len(group.made) == 2


def test_buffers_that_are_too_small_are_given_up(group):
    pool = Pool()
    small = pool.take(HOST, group, 2, F4)
    large = pool.take(HOST, group, 8, F4)
    assert pool.capacity == 32
    pool.give(small)
    pool.give(large)
    assert pool.take(HOST, group, 2, F4).base is large.base
    assert pool.take(HOST, group, 2, F4).base is not small.base
    with pytest.raises(KeyError):
        pool.give(small)  # twice


def test_large_memory_is_waited_for_small_is_taken(group, monkeypatch):
    pool, waited = Pool(), []
    first = pool.take(HOST, group, 4, F4)

    def settle():
        waited.append(1)
        pool.give(first)

    pool.settle = settle
    pool.take(HOST, group, 4, F4)
    assert not waited and len(group.made) == 2
    monkeypatch.setattr(pools, "BIG", 16)
    assert pool.take(HOST, group, 4, F4) is first
    assert waited and len(group.made) == 2
