"""What a peer that has proved the token can do wrong: it harms nobody's memory but its own."""

from __future__ import annotations

import random

import pytest
from comm.transports.tcp.victim import Victim

from disttrain.comm.sockets.link import Closed
from disttrain.comm.transports.tcp import frames
from disttrain.comm.transports.tcp.pipe import Garbage


def test_bytes_go_to_the_senders_own_areas_only():
    with Victim() as victim:
        comm, arena = victim.own
        for where, size in [
            (0, 8), (comm.start - 8, 16), (comm.stop - 8, 16), (arena.start - 1, 8),
            (arena.stop - 7, 8), (victim.segment.arena(0)[0], 8), (1 << 63, 8),
            (comm.start, 1 << 62),
        ]:  # fmt: skip
            with pytest.raises(Garbage, match="not rank 1's"):
                victim.net.target(1, frames.PUT, 0, where, size)
        for place in (0, comm.start - 8, comm.stop, arena.start - 8, arena.stop, 1 << 62):
            with pytest.raises(Garbage, match="not rank 1's"):
                victim.net.taken(1, frames.PUT, 0, 0, [(place // 8, 1)])
        assert len(victim.net.target(1, frames.PUT, 0, arena.start, 64)) == 64
        before = victim.others_memory()
        assert "not rank 1's" in victim.says(frames.put(64, 8) + b"x" * 8)
        assert victim.others_memory() == before


def test_frames_that_make_no_sense_end_the_link():
    for data in (
        frames.HEAD.pack(99, 0, 0, 0, 0, 0),
        frames.HEAD.pack(frames.PUT, 0, 9999, 0, 0, 0),
        frames.HEAD.pack(frames.NEWS, 0, 0, 0, 0, frames.MOST_NEWS + 1),
        frames.HEAD.pack(frames.NEWS, 0, 0, 0, 0, 4) + b"[1]]",
        frames.HEAD.pack(frames.NEWS, 0, 0, 0, 0, 2) + b"{}",
        frames.HEAD.pack(frames.BYE, 0, 0, 0, 0, 5) + b"xxxxx",
    ):
        with Victim() as victim:
            assert victim.says(data), data
            assert not victim.pipe.open


def test_pieces_that_nobody_awaits_are_thrown_away():
    with Victim() as victim:
        assert victim.says(frames.data(7, 0, 5000) + b"x" * 5000) == ""
        assert victim.says(frames.PULSE_FRAME) == "" and victim.pipe.open


@pytest.mark.parametrize("seed", range(20))
def test_random_frames_change_nobody_elses_memory(seed):
    chance = random.Random(seed)
    with Victim() as victim:
        before = victim.others_memory()
        places = [0, 64, *[r.start for r in victim.own], *[r.stop - 8 for r in victim.own], 1 << 40]
        for _ in range(40):
            size = chance.choice([0, 1, 8, 100, 3000])
            words = [(chance.choice(places) // 8, chance.getrandbits(64))] * chance.randrange(3)
            head = bytearray(frames.put(chance.choice(places), size, words))
            head[0] = chance.choice([frames.PUT, frames.PUT, frames.DATA, frames.PULSE, head[0]])
            if chance.random() < 0.2:
                head[chance.randrange(len(head))] = chance.getrandbits(8)
            try:
                victim.sock.sendall(bytes(head) + chance.randbytes(size))
                victim.net.block(0.01, lambda: False)
                victim.net.advance()
            except OSError:
                break
            except (Closed, Garbage) as error:
                raise AssertionError("the net has to end the link itself") from error
        assert victim.others_memory() == before
