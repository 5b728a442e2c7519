"""Large parts of messages go beside the streams, and what happens where the links fail."""

from __future__ import annotations

import gc
import logging
import os
import struct
import threading

import numpy as np
import pytest
from rpc.messages.conformance import WAIT
from rpc.messages.nodes import TOKEN, Threads

from disttrain import context
from disttrain.comm.sockets.handshake import Identity, Refused
from disttrain.comm.sockets.listener import call_on
from disttrain.errors import CommError, PeerFailed
from disttrain.rpc.messages.contract.message import Limits, Message
from disttrain.rpc.messages.hosts import handshake
from disttrain.rpc.messages.hosts.endpoint import RemoteEndpoint
from disttrain.rpc.messages.hosts.frames import Frames
from disttrain.rpc.messages.hosts.large_parts import _SAID

LARGE = 12 << 20  # on two links


def nodes(**how):
    return Threads(lambda me, token, limits: RemoteEndpoint(me, token, limits, **how))


@pytest.fixture(params=[True, False], ids=["sealed", "plain"])
def both(request):
    return nodes(data_tls=request.param)


def large(fill=0):
    return (np.arange(LARGE // 8) + fill).astype("f8")


class Worker:
    """An endpoint that keeps what it hears."""

    def __init__(self, number, **how):
        self.endpoint = RemoteEndpoint(number, TOKEN, **how)
        self.got, self.lost = [], {}
        self.endpoint.serve(lambda peer, message: self.got.append(message), self.lost.__setitem__)

    def wires(self, peer):
        return self.endpoint._peers[peer].wires


@pytest.fixture
def pair():
    a, b = Worker(0, tls=False), Worker(1, tls=False)
    a.endpoint.connect(1, b.endpoint.address)
    yield a, b
    a.endpoint.close()
    b.endpoint.close()


def until(ready, what="a test's condition"):
    context.wait_until(ready, lambda: what, WAIT)


def test_large_messages_of_many_threads_keep_their_parts(both):
    def body(node):
        node.handle = node.echo
        node.meet()
        peer, failed = 1 - node.me, []

        def ask(fill):
            arrays = [np.full(7, fill), large(fill), np.zeros((0, 3)), np.full((300, 301), fill)]
            answer = node.call(peer, head=b"%d" % fill, payload=bytes(200_000), arrays=arrays)
            same = all(map(np.array_equal, arrays, answer.arrays))
            if not same or answer.head != b"%d" % fill or bytes(answer.payload) != bytes(200_000):
                failed.append(fill)
            answer.arrays[1][:] = -1  # writable, and nobody else's

        rank = context.current()

        def run(fill):
            with context.attach(rank):
                ask(fill)

        threads = [threading.Thread(target=run, args=(3 * node.me + n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        node.meet()  # both have answered
        wires = node.endpoint._peers[peer].wires
        lanes = {lane: len(links) for lane, links in wires.there.items()}
        node.meet()  # from here on, who is first closes its end and so the other's
        return failed, lanes

    lanes = {handshake.REQUESTS: 2, handshake.LARGE_ANSWERS: 2}
    assert both.run(2, body) == [([], lanes)] * 2


def test_small_and_large_requests_keep_their_order(both):
    def body(node):
        node.meet()
        if node.me == 0:
            for n in range(12):
                arrays = [np.full((1 << 18) if n % 3 else (1 << 20), n)] if n % 2 else []
                node.endpoint.send(1, Message(1, 0, head=b"%d" % n, arrays=arrays))
        node.until(lambda: node.me == 0 or len(node.got) == 12)
        node.meet()
        assert all((m.arrays[0] == int(m.head)).all() for _, m in node.got if m.arrays)
        return sorted(int(message.head) for _, message in node.got)

    assert both.run(2, body)[1] == list(range(12))


def test_without_a_way_to_the_door_the_stream_carries_all(pair, caplog):
    a, b = pair
    b.endpoint._large_parts.close()
    with caplog.at_level(logging.WARNING, "disttrain.messaging"):
        for n in range(2):
            a.endpoint.send(1, Message(1, 0, arrays=[large(n)]))
    until(lambda: len(b.got) == 2)
    assert sorted(float(m.arrays[0][0]) for m in b.got) == [0.0, 1.0]
    assert sum("travel slowly to worker 1" in r.message for r in caplog.records) == 1


def test_links_are_sealed_alike_on_all(caplog):
    a, b = Worker(0), Worker(1, data_tls=False)
    assert "large tensors travel without encryption" in caplog.text
    with pytest.raises(PeerFailed, match="data_tls= is not the same there"):
        a.endpoint.connect(1, b.endpoint.address)
    a.endpoint.close()
    b.endpoint.close()


def test_a_link_that_breaks_is_the_end_of_the_peer(pair):
    a, b = pair
    a.endpoint.send(1, Message(1, 0, arrays=[large()]))
    until(lambda: len(b.got) == 1)
    for link in list(b.wires(0).here.values()):
        link.shut()
    with pytest.raises((PeerFailed, CommError)):
        for _ in range(100):
            a.endpoint.send(1, Message(1, 0, arrays=[large()]))
    until(lambda: 0 in b.lost and 1 in a.lost)


def test_a_receiver_that_leaves_lets_the_sender_go(pair):
    """It reads nothing any more: its last message is never taken."""
    a, b = pair
    a.endpoint.send(1, Message(1, 0, arrays=[large()]))
    until(lambda: len(b.got) == 1)
    threading.Timer(0.1, b.endpoint.close).start()
    with pytest.raises((PeerFailed, CommError)):
        while True:
            a.endpoint.send(1, Message(1, 0, arrays=[large()]))
    until(lambda: 1 in a.lost)


def test_nothing_is_left():
    """No descriptor waits for the garbage collector, which may not come for long."""

    def once():
        a, b = Worker(0, tls=False), Worker(1, tls=False)
        a.endpoint.connect(1, b.endpoint.address)
        a.endpoint.send(1, Message(1, 0, arrays=[large()]))
        until(lambda: len(b.got) == 1)
        b.endpoint.send(0, Message(1, 1, True))
        until(lambda: len(a.got) == 1)
        a.endpoint.close()
        b.endpoint.close()

    def held():
        return len(os.listdir("/proc/self/fd"))

    once()  # what gRPC keeps for ever
    gc.collect()
    before = held()
    gc.disable()
    try:
        for _ in range(3):
            once()
        until(lambda: held() <= before, "descriptors to be given back")
    finally:
        gc.enable()
    assert not [t.name for t in threading.enumerate() if t.name.startswith("links-")]


def test_where_no_thread_can_be_started_those_that_there_are_go_on(pair, monkeypatch):
    a, b = pair
    a.endpoint.send(1, Message(1, 0, arrays=[large()]))
    until(lambda: len(b.got) == 1)

    def none(body):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(b.endpoint._threads, "run", none)
    for n in range(1, 4):
        a.endpoint.send(1, Message(1, 0, head=b"%d" % n, arrays=[large(n)]))
    until(lambda: len(b.got) == 4)
    assert [float(m.arrays[0][0]) for m in b.got] == [0.0, 1.0, 2.0, 3.0]
    monkeypatch.undo()


class TestSmallAnswers:
    """They come back on a link of their own."""

    @pytest.fixture
    def asked(self, pair):
        """``ask()`` has worker 1 answer; the link that its answers come on is there afterwards."""
        a, b = pair
        b.endpoint._on_message = lambda peer, m: b.endpoint.send(
            peer, Message(0, m.call, True, payload=m.payload)
        )
        calls = iter(range(1, 100))

        def ask():
            call = next(calls)
            a.endpoint.send(1, Message(0, call, payload=b"%d" % call))
            until(lambda: call in [m.call for m in a.got])
            assert {bytes(m.payload) for m in a.got if m.call == call} == {b"%d" % call}

        ask()
        return ask, b.wires(0).answers

    def test_many_come_on_one_link(self, pair, asked):
        ask, answers = asked
        for _ in range(20):
            ask()
        assert pair[1].wires(0).answers is answers is not None

    def test_one_that_is_interrupted_is_the_last(self, pair, asked, monkeypatch):
        link = asked[1].link
        monkeypatch.setattr(link, "_put", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            asked[1].send(b"half of it")
        assert link.closed
        until(lambda: 1 in pair[0].lost)

    def test_without_a_way_to_the_door_they_come_on_the_stream(self, pair):
        a, b = pair
        a.endpoint._large_parts.close()
        b.endpoint.connect(0, a.endpoint.address)
        b.endpoint.send(0, Message(0, 5, True))
        until(lambda: [m.call for m in a.got] == [5])
        assert b.wires(0).answers is None

    def test_a_link_that_breaks_is_the_end_of_the_peer(self, pair, asked):
        asked[1].link.shut()
        until(lambda: 1 in pair[0].lost)

    @pytest.mark.parametrize(
        ("said", "told"),
        [
            (b"\xff\xff\xff\xff", "an answer of 4294967295 bytes"),
            (b"\x03\x00\x00\x00abc", "a message of 3 bytes"),
            (struct.pack("<I", 40) + Frames(Message(1, 1), Limits(), "x").only, "among answers"),
            (
                struct.pack("<I", 40) + Frames(Message(1, 1, True), Limits(), "x").announcement(1),
                "a part of an answer",
            ),
        ],
        ids=["giant", "short", "request", "part"],
    )
    def test_what_is_no_small_answer_is_refused(self, pair, asked, said, told):
        asked[1].link.send(said)
        until(lambda: 1 in pair[0].lost)
        assert told in str(pair[0].lost[1])


def _interrupt(*args):
    raise KeyboardInterrupt


class TestPeersThatLie:
    """They know the token."""

    def link(self, pair, life=None, place=0):
        a, b = pair
        me = Identity(0, TOKEN, "messages", tls=False, job=handshake.JOB)
        mine = a.endpoint._peers[1].mine if life is None else life
        said = _SAID.pack(handshake.REQUESTS, place, mine)
        return call_on(me, 1, "127.0.0.1", b.endpoint._large_parts.port, said)[0]

    @pytest.mark.parametrize("wrong", [{"life": bytes(16)}, {"place": 2}])
    def test_links_of_no_stream_are_refused(self, pair, wrong):
        with pytest.raises(Refused, match="knows no stream"):
            self.link(pair, **wrong)

    def test_a_second_link_for_one_place_changes_nothing(self, pair):
        a, b = pair
        a.endpoint.send(1, Message(1, 0, arrays=[large()]))
        self.link(pair).close()
        a.endpoint.send(1, Message(1, 0, arrays=[large(5)]))
        until(lambda: len(b.got) == 2)
        assert np.array_equal(b.got[1].arrays[0], large(5))

    @pytest.mark.parametrize("links", [3, 65535])
    def test_parts_on_links_that_nobody_has_are_refused(self, pair, links):
        a, b = pair

        frames = Frames(Message(1, 0, arrays=[large()]), a.endpoint.limits, "test")
        a.endpoint._peers[1].lanes[handshake.REQUESTS].announce(frames.announcement(links))
        until(lambda: 0 in b.lost)
        assert f"on {links} links were announced" in str(b.lost[0])
