"""Memory lent by a worker: which slab is used again, given back, never written to."""

from __future__ import annotations

import os

import numpy as np
import pytest

from disttrain.data.slabs import BUSY, DEAD, FREE, NUM_SLABS, Borrowed, Shelf

SIZE = 1 << 16  # what a slab is rounded up to


@pytest.fixture
def ends():
    """The two sides of one worker's memory."""
    shelf = Shelf()
    yield shelf, Borrowed(shelf.page_fd)
    os.close(shelf.page_fd)


def fill(ends, num_bytes, value=0):
    """The worker fills a slab; the other side maps it where it is new: (number, was it new)."""
    shelf, home = ends
    number, memory, fd = shelf.place(num_bytes)
    memory[:num_bytes] = value
    if fd >= 0:
        home.add(number, fd, memory.size)
        os.close(fd)
    return number, fd >= 0


def test_what_the_worker_writes_is_read_without_a_copy(ends):
    shelf, home = ends
    number, new = fill(ends, 10, 7)
    a = home.array(number)
    assert new and a.size == SIZE and a[:10].tolist() == [7] * 10 and a[10] == 0
    shelf.slabs[number][0] = 9
    assert a[0] == 9 and shelf.states[number] == BUSY


def test_a_slab_is_used_again_when_the_last_array_over_it_is_gone(ends):
    shelf, home = ends
    number, _ = fill(ends, 10)
    a = home.array(number)
    part = a[3:5].reshape(2, 1).view(np.int8)
    del a
    assert shelf.states[number] == BUSY and fill(ends, 10) == (1, True)
    del part
    assert shelf.states[number] == FREE and fill(ends, 10) == (number, False)


def test_the_smallest_that_fits_is_taken_and_a_small_one_makes_room_for_a_larger(ends):
    shelf, home = ends
    for size in (3 * SIZE, SIZE, 2 * SIZE):
        fill(ends, size)
    for number in range(3):
        home.array(number)
    assert fill(ends, SIZE + 1) == (2, False)
    assert fill(ends, SIZE + 1) == (0, False)
    assert fill(ends, SIZE + 1) == (1, True)  # under the number of the one that was too small
    assert shelf.slabs[1].size == 2 * SIZE and home.slabs[1].size == 2 * SIZE


def test_more_than_are_kept_are_unmapped_on_both_sides(ends):
    shelf, home = ends
    home.keep = 1
    arrays = [home.array(fill(ends, 10)[0]) for _ in range(3)]
    arrays.clear()
    assert sorted(shelf.states[:3].tolist()) == [FREE, DEAD, DEAD] and len(home.slabs) == 1
    dead = int(np.flatnonzero(shelf.states[:3] == DEAD)[0])
    kept = next(iter(home.slabs))
    assert fill(ends, 10) == (kept, False)
    assert shelf.slabs[dead] is None and fill(ends, 10) == (dead, True)


def test_what_a_forked_child_may_see_is_not_written_over(ends):
    shelf, home = ends
    seen, later = fill(ends, 10)[0], fill(ends, 10)[0]
    a = home.array(seen)
    home.before_fork()
    b = home.array(later)
    del a, b
    assert shelf.states[seen] == DEAD and shelf.states[later] == FREE
    a = home.array(fill(ends, 10)[0])
    del a
    assert shelf.states[later] == FREE


def test_a_forked_child_gives_nothing_back(ends, monkeypatch):
    shelf, home = ends
    number, _ = fill(ends, 10)
    a = home.array(number)
    me = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: me + 1)
    del a
    assert shelf.states[number] == BUSY


def test_after_all_numbers_slabs_are_used_once(ends):
    shelf, home = ends
    shelf.slabs = [np.empty(0, np.uint8)] * NUM_SLABS
    shelf.states[:] = BUSY
    number, new = fill(ends, 10, 3)
    assert (number, new) == (NUM_SLABS + 1, True) and fill(ends, 10) == (NUM_SLABS + 2, True)
    a = home.array(number)
    assert a[9] == 3
    del a
    assert number not in home.slabs and (shelf.states == BUSY).all()
    shelf.take_back([5, number])
    assert shelf.states[5] == FREE


def test_when_the_worker_is_gone_only_what_is_used_stays(ends):
    shelf, home = ends
    used, idle = fill(ends, 10, 4)[0], fill(ends, 10)[0]
    a = home.array(used)
    home.close()
    assert set(home.slabs) == {used} and idle not in home.slabs and a[0] == 4
    del a
    assert not home.slabs and shelf.states[used] == DEAD
