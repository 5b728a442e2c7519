"""The allocator of shared memory: no overlap, coalescing, freed by the last view."""

from __future__ import annotations

import gc
import mmap
import random

import numpy as np
import pytest

from disttrain.comm.transports.shm import arena
from disttrain.comm.transports.shm.arena import Arena
from disttrain.errors import CommError

SIZE = 1 << 20


@pytest.fixture
def memory():
    return Arena(mmap.mmap(-1, SIZE + 4096), 4096, SIZE)


def test_random_blocks_never_overlap_and_all_comes_back(memory):
    rng, blocks = random.Random(1), {}
    for _ in range(3000):
        if blocks and rng.random() < 0.5:
            memory.give(blocks.popitem()[0] if rng.random() < 0.5 else _pop(rng, blocks))
        else:
            n = rng.choice([1, 63, 64, 65, 4000, 70_000])
            try:
                offset = memory.take(n)
            except CommError:
                continue
            assert offset % arena.ALIGN == 0 and 4096 <= offset <= 4096 + SIZE - n
            assert all(offset + n <= o or o + m <= offset for o, m in blocks.items())
            blocks[offset] = n
    for offset in list(blocks):
        memory.give(offset)
    assert memory.used_bytes() == 0
    assert memory.take(SIZE) == 4096, "the pieces have become one block again"


def _pop(rng, blocks):
    offset = rng.choice(list(blocks))
    del blocks[offset]
    return offset


def test_the_last_view_frees(memory):
    a = memory.allocate(1000)
    assert a.dtype == np.uint8 and a.shape == (1000,)
    view = a[100:200].view(np.float32).reshape(5, 5)
    del a
    gc.collect()
    assert memory.used_bytes() == 1024
    del view
    gc.collect()
    assert memory.used_bytes() == 0


def test_too_much_is_refused_with_numbers(memory):
    held = memory.take(1000)
    with pytest.raises(CommError, match=rf"{SIZE} bytes were asked.*1024 in use.*arena_bytes="):
        memory.take(SIZE)
    memory.give(held)
    memory.take(SIZE)


def test_pages_go_back_to_the_system(monkeypatch):
    import os

    monkeypatch.setattr(arena, "KEEP_BYTES", 1 << 20)
    fd = os.memfd_create("test")
    os.ftruncate(fd, 16 << 20)
    memory = Arena(mmap.mmap(fd, 16 << 20), 0, 16 << 20)
    for _ in range(3):
        a = memory.allocate(8 << 20)
        a[:] = 1
        assert os.fstat(fd).st_blocks * 512 >= 8 << 20
        del a
        memory.give(memory.take(1))
        assert os.fstat(fd).st_blocks * 512 < 1 << 20
    os.close(fd)
