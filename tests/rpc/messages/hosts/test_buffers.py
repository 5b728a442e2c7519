"""Memory of received arrays is used again when its last view is gone, and not before."""

from __future__ import annotations

import gc
import threading

import pytest

from disttrain.rpc.messages.hosts.buffers import LEAST, Rooms


def place(array):
    return array.__array_interface__["data"][0]


def test_memory_is_used_again_for_the_same_size_only():
    rooms = Rooms()
    first = rooms.take(LEAST + 5)
    assert first.shape == (LEAST + 5,) and first.flags.writeable
    where = place(first)
    del first
    assert rooms.kept_bytes() >= LEAST + 5
    other = rooms.take(2 * LEAST)
    again = rooms.take(LEAST + 6)  # as many pages
    assert place(again) == where != place(other)


def test_a_view_keeps_it():
    rooms = Rooms()
    found = rooms.take(LEAST)
    view = found.view("f8").reshape(2, -1)[1:]
    view[:] = 3.0
    where = place(found)
    del found
    gc.collect()
    new = rooms.take(LEAST)
    new[:] = 0
    assert place(new) != where and (view == 3.0).all()
    del view, new
    assert rooms.kept_bytes() == 2 * LEAST


def test_no_more_is_kept_than_the_limit():
    rooms = Rooms(most=3 * LEAST)
    arrays = [rooms.take(LEAST) for _ in range(6)] + [rooms.take(4 * LEAST)]
    assert rooms.kept_bytes() == 0
    arrays.clear()
    assert rooms.kept_bytes() == 3 * LEAST


def test_nothing_is_kept_after_the_end():
    rooms = Rooms()
    out = rooms.take(LEAST)
    rooms.take(2 * LEAST)
    assert rooms.kept_bytes() == 2 * LEAST
    rooms.close()
    assert rooms.kept_bytes() == 0
    out[:] = 1
    del out
    assert rooms.kept_bytes() == 0


def test_small_arrays_and_impossible_ones():
    rooms = Rooms()
    assert rooms.take(0).nbytes == 0 and rooms.take(100).base is None
    with pytest.raises(MemoryError):
        rooms.take(1 << 62)


def test_many_threads_share_none():
    rooms, failed = Rooms(), []

    def work(n):
        for _ in range(30):
            array = rooms.take(LEAST)
            array[::4096] = n
            if not (array[::4096] == n).all():
                failed.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert rooms.kept_bytes() <= 8 * LEAST
