"""Memory of received arrays is used again when its last view is gone, and not before."""

from __future__ import annotations

import gc
import threading

import pytest

from disttrain.rpc.messages.hosts.buffers import LEAST, ReceiveBuffers


def place(array):
    return array.__array_interface__["data"][0]


def test_memory_is_used_again_for_the_same_size_only():
    buffers = ReceiveBuffers()
    first = buffers.take(LEAST + 5)
    assert first.shape == (LEAST + 5,) and first.flags.writeable
    where = place(first)
    del first
    assert buffers.kept_bytes() >= LEAST + 5
    other = buffers.take(2 * LEAST)
    again = buffers.take(LEAST + 6)  # as many pages
    assert place(again) == where != place(other)


def test_a_view_keeps_it():
    buffers = ReceiveBuffers()
    found = buffers.take(LEAST)
    view = found.view("f8").reshape(2, -1)[1:]
    view[:] = 3.0
    where = place(found)
    del found
    gc.collect()
    new = buffers.take(LEAST)
    new[:] = 0
    assert place(new) != where and (view == 3.0).all()
    del view, new
    assert buffers.kept_bytes() == 2 * LEAST


def test_no_more_is_kept_than_the_limit():
    buffers = ReceiveBuffers(most=3 * LEAST)
    arrays = [buffers.take(LEAST) for _ in range(6)] + [buffers.take(4 * LEAST)]
    assert buffers.kept_bytes() == 0
    arrays.clear()
    assert buffers.kept_bytes() == 3 * LEAST


def test_nothing_is_kept_after_the_end():
    buffers = ReceiveBuffers()
    out = buffers.take(LEAST)
    buffers.take(2 * LEAST)
    assert buffers.kept_bytes() == 2 * LEAST
    buffers.close()
    assert buffers.kept_bytes() == 0
    out[:] = 1
    del out
    assert buffers.kept_bytes() == 0


def test_small_arrays_and_impossible_ones():
    buffers = ReceiveBuffers()
    assert buffers.take(0).nbytes == 0 and buffers.take(100).base is None
    with pytest.raises(MemoryError):
        buffers.take(1 << 62)


def test_many_threads_share_none():
    buffers, failed = ReceiveBuffers(), []

    def work(n):
        for _ in range(30):
            array = buffers.take(LEAST)
            array[::4096] = n
            if not (array[::4096] == n).all():
                failed.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert buffers.kept_bytes() <= 8 * LEAST
