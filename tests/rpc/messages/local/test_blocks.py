"""Memory that is lent with messages: who has it, when it comes back, what is never given."""

from __future__ import annotations

import gc
import os

import numpy as np
import pytest

from disttrain.rpc.messages.local import blocks
from disttrain.rpc.messages.local.blocks import Lender, Memory
from disttrain.rpc.messages.local.frames import STREAMED, Garbage


class To:
    """A borrower whose process lives until it does not."""

    gone = False


@pytest.fixture
def lender():
    made = Lender(64 << 20)
    yield made
    made.close()


def part(nbytes, seed=0):
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)


@pytest.mark.parametrize("nbytes", [1, 64, 50_000, 3_000_001, 9_000_001])
def test_what_is_lent_is_found(lender, nbytes):
    sent = part(nbytes)
    at = lender.lend(sent, To())
    found = Memory(lender.fd).find(at, nbytes)
    assert np.array_equal(found, sent) and found.ctypes.data % 64 == 0
    found[:] = 0
    assert sent.any() or nbytes == 1


def test_large_parts_are_copied_whole_where_no_thread_can_start(lender, monkeypatch):
    def none(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(blocks.threading.Thread, "start", none)
    sent = part(9_000_001)
    assert np.array_equal(Memory(lender.fd).find(lender.lend(sent, To()), sent.nbytes), sent)


def test_a_block_comes_back_with_the_last_view_of_it(lender):
    memory, to = Memory(lender.fd), To()
    found = memory.find(lender.lend(part(100_000), to), 100_000)
    view = found[10:20].view(np.uint16)
    del found
    gc.collect()
    assert lender.lent_bytes() >= 100_000
    del view
    assert lender.lent_bytes() == 0


def test_blocks_are_used_again(lender):
    memory, to, places = Memory(lender.fd), To(), set()
    for i in range(50):
        at = lender.lend(part(100_000, i), to)
        places.add(at)
        assert np.array_equal(memory.find(at, 100_000), part(100_000, i))
    assert len(places) == 1


def test_a_full_arena_streams_until_something_comes_back(lender):
    memory, to, held = Memory(lender.fd), To(), []
    while (at := lender.lend(part(10 << 20), to)) != STREAMED:
        held.append(memory.find(at, 10 << 20))
    assert len(held) == 6
    held.pop(2)
    assert lender.lend(part(10 << 20), to) != STREAMED


def test_blocks_that_come_back_among_many_that_do_not_are_found(lender):
    memory, to = Memory(lender.fd), To()
    kept = [memory.find(lender.lend(part(64), to), 64) for _ in range(500)]
    for i in range(200):
        memory.find(lender.lend(part(100_000, i), to), 100_000)
    assert len(kept) == 500 and lender.lent_bytes() < 500 * 128 + 20 * 110_000


def test_what_a_dead_borrower_had_comes_back(lender):
    to = To()
    lender.lend(part(100_000), to)
    assert lender.lent_bytes() >= 100_000
    to.gone = True
    assert lender.lent_bytes() == 0


def test_what_reached_nobody_comes_back(lender):
    lender.recall(lender.lend(part(100_000), To()))
    assert lender.lent_bytes() == 0


def test_a_part_that_cannot_be_copied_comes_back(lender, monkeypatch):
    def stop(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(blocks.np, "copyto", stop)
    with pytest.raises(KeyboardInterrupt):
        lender.lend(part(100_000), To())
    monkeypatch.undo()
    assert lender.lent_bytes() == 0


def test_only_what_is_lent_is_found_and_once(lender):
    memory = Memory(lender.fd)
    at = lender.lend(part(100_000), To())
    for wrong in (0, 32, at + 64, at + 1, lender._arena.end - 64):
        with pytest.raises(Garbage, match="not lent"):
            memory.find(wrong, 100_000)
    with pytest.raises(Garbage, match="not lent"):
        memory.find(at, 1 << 40)
    found = memory.find(at, 100_000)
    with pytest.raises(Garbage, match="not lent"):
        memory.find(at, 100_000)
    assert found.nbytes == 100_000


def test_memory_that_could_be_taken_away_is_refused():
    for fd in (os.memfd_create("x", os.MFD_ALLOW_SEALING), os.open("/dev/null", os.O_RDONLY)):
        with pytest.raises(Garbage, match="no sealed memory"):
            Memory(fd)
        os.close(fd)


def test_the_receiver_keeps_what_it_has_when_the_lender_closes():
    lender = Lender(64 << 20)
    sent = part(100_000)
    found = Memory(lender.fd).find(lender.lend(sent, To()), 100_000)
    lender.close()
    lender.close()
    assert lender.fd == -1 and lender.lend(sent, To()) == STREAMED
    assert np.array_equal(found, sent)
