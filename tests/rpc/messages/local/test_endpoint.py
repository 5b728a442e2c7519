"""Messages over Unix sockets and shared memory do what every transport does."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from rpc.messages.conformance import Conformance
from rpc.messages.nodes import Threads

from disttrain import context
from disttrain.rpc.messages.contract.message import Limits
from disttrain.rpc.messages.local import blocks
from disttrain.rpc.messages.local.endpoint import LocalEndpoint


class TestLocal(Conformance):
    """With shared memory."""

    @pytest.fixture
    def nodes(self):
        return Threads(LocalEndpoint)


class TestLocalWithoutSharedMemory(Conformance):
    """Large parts go through the socket, in pieces."""

    @pytest.fixture
    def nodes(self):
        return Threads(partial(LocalEndpoint, arena_bytes=0))


def test_what_finds_no_room_in_shared_memory_goes_through_the_socket(monkeypatch):
    """An arena of 1 MB, and three parts of 400 KB in one message."""
    monkeypatch.setattr(blocks, "LEAST_ARENA_BYTES", 1 << 20)

    def body(node):
        node.handle = node.echo
        node.meet()
        if node.me == 0:
            parts = [np.full(400 << 10, i, np.uint8) for i in range(3)]
            for came, sent in zip(node.call(1, arrays=parts).arrays, parts, strict=True):
                assert np.array_equal(came, sent)
        node.meet()
        return "ok"

    nodes = Threads(partial(LocalEndpoint, arena_bytes=1 << 20))
    assert nodes.run(2, body) == ["ok"] * 2


def test_large_messages_of_many_threads_do_not_mix():
    """Pieces of one message at a time, with small messages between them."""

    def body(node):
        node.handle = node.echo
        node.meet()
        wrong, done = [], []

        def caller(i):
            for j in range(5):
                data = np.full(100_000 if i % 2 else 10, 10 * i + j, np.int32)
                came = node.call(1 - node.me, payload=data.tobytes(), arrays=[data, data]).arrays
                if not all(np.array_equal(data, each) for each in came):
                    wrong.append((i, j))
            done.append(i)

        for i in range(4):
            context.start_thread(lambda i=i: caller(i), f"caller-{i}")
        node.until(lambda: len(done) == 4)
        node.meet()
        return wrong

    assert Threads(partial(LocalEndpoint, arena_bytes=0)).run(2, body) == [[], []]


def test_the_receiver_has_limits_of_its_own():
    """A peer whose limits are wider is cut off."""

    def make(me, token, limits):
        return LocalEndpoint(me, token, Limits(payload_bytes=1000) if me else None)

    def body(node):
        if node.me == 0:
            node.ask(1, payload=bytes(2000))
        node.until(lambda: 1 - node.me in node.lost)
        node.meet()
        return str(node.lost[1 - node.me])

    said = Threads(make).run(2, body)
    assert "2000 bytes of payload; at most 1000 (payload_bytes)" in said[1]
