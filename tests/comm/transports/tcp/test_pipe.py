"""A peer's end of two links: frames that come in any pieces, what is sent without copies."""

from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np
import pytest

from disttrain import context
from disttrain.comm.sockets.link import Closed
from disttrain.comm.transports.tcp import frames
from disttrain.comm.transports.tcp.pipe import Garbage, Pipe

pytestmark = pytest.mark.simulated


class Link:
    """A link in memory: what was sent, what is to come, how much goes at once."""

    sealed = False

    def __init__(self):
        self.sock = SimpleNamespace(setsockopt=lambda *args: None)
        self.sent, self.coming = bytearray(), bytearray()
        self.room, self.at_once, self.closed, self.quiet = 1 << 60, 1 << 60, False, None
        self.losses = SimpleNamespace(look=lambda: None)

    def silence(self, seconds):
        self.quiet = seconds

    def push(self, view):
        size = min(len(view), self.room)
        self.sent += view[:size]
        self.room -= size
        return size

    def flush(self):
        return True

    def pull(self, view):
        size = min(len(view), len(self.coming), self.at_once)
        view[:size] = self.coming[:size]
        del self.coming[:size]
        return size

    def close(self):
        self.closed = True


class Taker:
    """Keeps what frames bring."""

    def __init__(self):
        self.memory, self.frames = {}, []

    def target(self, rank, kind, index, where, size):
        if where == 666:
            raise Garbage("nobody has asked for that")
        self.memory[index] = np.zeros(size, np.uint8)
        return self.memory[index].data

    def taken(self, rank, kind, index, where, words):
        data = self.memory[index].tobytes()
        self.frames.append((rank, kind, index, where, data, list(words)))


@pytest.fixture
def pipe():
    made = Pipe(3, Link(), Link(), Taker())
    assert made.pulse.quiet is not None and made.open and made.idle
    return made


def frame(index, data, words=(), where=5):
    """A frame of any kind: the parser looks at sizes alone."""
    head = frames.HEAD.pack(frames.PUT, 0, len(words), index, where, len(data))
    return head + b"".join(frames.WORD.pack(*w) for w in words) + data


def many(seed):
    draw = random.Random(seed)
    sizes = [0, 1, 100, 5000, 40_000, 200_000]
    out = []
    for index in range(30):
        data = draw.randbytes(draw.choice(sizes))
        words = [(draw.getrandbits(60), draw.getrandbits(60)) for _ in range(draw.randrange(4))]
        out.append((index, data, words))
    return out


@pytest.mark.parametrize("at_once", [1 << 60, 16_384, 1000, 37])
def test_frames_come_whole_in_whatever_pieces_they_arrive(pipe, at_once):
    told = many(at_once) if at_once > 100 else many(at_once)[:8]
    stream = b"".join(frame(*each) for each in told)
    draw = random.Random(1)
    pipe.link.at_once = at_once
    while stream or pipe.link.coming:
        size = draw.randrange(1, 60_000)
        pipe.link.coming += stream[:size]
        stream = stream[size:]
        pipe.receive()
    want = [(3, frames.PUT, i, 5, data, words) for i, data, words in told]
    assert pipe._taker.frames == want


def test_one_call_takes_so_much_that_others_come_too(pipe):
    pipe.link.coming += frame(0, bytes(20 << 20))
    pipe.link.at_once = 1 << 20
    pipe.receive()
    assert pipe._taker.frames == [] and pipe.link.coming
    while pipe.link.coming:
        pipe.receive()
    assert len(pipe._taker.frames) == 1


def test_frames_belong_to_who_takes_over(pipe):
    pipe.link.coming += frame(1, b"a")
    pipe.receive()
    first, second = pipe._taker, Taker()
    pipe.hand_over(7, second)
    pipe.link.coming += frame(2, b"b")
    pipe.receive()
    assert len(first.frames) == 1 and second.frames[0][:3] == (7, frames.PUT, 2)


def test_what_makes_no_sense_is_refused(pipe):
    pipe.link.coming += frames.HEAD.pack(frames.PUT, 0, 65, 0, 0, 0)
    with pytest.raises(Garbage, match="a frame with 65 words"):
        pipe.receive()
    other = Pipe(3, Link(), Link(), Taker())
    other.link.coming += frame(1, b"abc", where=666)
    with pytest.raises(Garbage, match="nobody has asked"):
        other.receive()


def test_frames_are_sent_in_their_order_as_there_is_room(pipe):
    small, large = b"s" * 10, np.arange(100_000, dtype=np.uint8)
    want = b""
    for data in (small, large.data, small):
        head = frames.put(1, len(data))
        pipe.add(head, data)
        want += head + bytes(data)
    assert not pipe.idle
    while not pipe.idle:
        pipe.link.room = 7001
        pipe.go()
    assert bytes(pipe.link.sent) == want


def test_large_data_is_read_when_it_is_sent_and_small_data_at_once(pipe):
    small, large = bytearray(b"s" * 10), bytearray(b"l" * (1 << 20))
    pipe.add(b"h", small)
    pipe.add(b"h", large)
    small[:] = b"S" * 10
    large[:] = b"L" * (1 << 20)
    pipe.go()
    assert pipe.link.sent == b"h" + b"s" * 10 + b"h" + b"L" * (1 << 20)


def test_what_the_kernel_still_has_of_a_record_is_not_idle(pipe):
    pipe.link.flush = lambda: False
    pipe.add(b"h")
    pipe.go()
    assert not pipe.idle
    pipe.link.flush = lambda: True
    pipe.go()
    assert pipe.idle


class Clock(context.Waiter):
    at = 0.0

    def now(self):
        return self.at


def test_signs_of_life_go_over_the_second_link_until_it_has_ended(pipe):
    pipe.beat()
    assert bytes(pipe.pulse.sent) == frames.PULSE_FRAME and pipe.link.sent == b""
    pipe.pulse.coming += frames.PULSE_FRAME * 100
    pipe.hear()
    assert not pipe.pulse.coming
    with context.attach(context.Rank(waiter=Clock())) as rank:
        pipe.outlive_pulse()
        rank.waiter.at = 3.4
        pipe.beat()  # what was said before may still come
        rank.waiter.at = 3.6
        with pytest.raises(Closed):
            pipe.beat()


def test_a_pipe_that_is_closed_does_nothing_more(pipe):
    pipe.add(b"h", b"data")
    pipe.link.coming += b"unread"
    pipe.close()
    assert pipe.link.closed and pipe.pulse.closed and pipe.idle
    assert not pipe.link.coming, "what lies unread would break the connection"
    pipe.beat()
    pipe.go()
    assert pipe.link.sent == b""


def test_a_child_leaves_what_lies_unread_to_its_parent(pipe):
    pipe.link.coming += b"unread"
    pipe.disown()
    assert pipe.link.closed and pipe.pulse.closed and pipe.link.coming == b"unread"
