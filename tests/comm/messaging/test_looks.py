"""How often a reader looks before it sleeps: as long as it pays, and seldom where it does not."""

from __future__ import annotations

import socket

import pytest

from disttrain.comm.messaging.frames import encode_small
from disttrain.comm.messaging.link import Link
from disttrain.comm.messaging.local import LocalEndpoint
from disttrain.comm.messaging.looks import FIRST, LAST, LOOKS, PATIENCE, Looks
from disttrain.comm.messaging.message import Limits, Message
from disttrain.context import current


def looks(found, reads, most=LOOKS):
    """How many of ``reads`` look, where ``found(read)`` says whether something comes meanwhile."""
    each = Looks()
    each.most = most
    looked = 0
    for read in range(reads):
        if each.now():
            looked += 1
            each.found() if found(read) else each.in_vain()
    return looked


def test_what_comes_soon_is_looked_out_for():
    assert looks(lambda read: True, 1000) == 1000
    assert looks(lambda read: read % 4 != 0, 1000) == 1000


def test_looking_in_vain_is_given_up_and_seldom_tried_again():
    assert looks(lambda read: False, 100_000) < PATIENCE * 9
    assert looks(lambda read: read % 2 == 0, 100_000) < 10_000


def test_looking_begins_again_where_it_pays_again():
    rest = 2 * LAST + PATIENCE
    assert looks(lambda read: read > 10_000, 20_000 + rest) > 10_000
    each = Looks()
    each.most = 1
    for _ in range(PATIENCE * 5):
        each.in_vain()
    each._rest = 0
    each.in_vain()
    for _ in range(PATIENCE):  # it is as if it had never been given up
        each.found()
    for _ in range(PATIENCE // 2):
        each.in_vain()
    assert [each.now() for _ in range(FIRST + 1)] == [0] * FIRST + [1]


def test_nobody_looks_where_told_not_to():
    assert looks(lambda read: True, 100, most=0) == 0


class Socket:
    """Has a packet at the ``nth`` look, or for who sleeps."""

    def __init__(self, nth):
        self.left, self.slept = nth, 0

    def fileno(self):
        return -1

    def settimeout(self, seconds):
        assert seconds is None

    def setsockopt(self, *what):
        assert len(what) == 3

    def send(self, packet, flags):
        raise AssertionError

    def recv_into(self, room, size, flags):
        if flags & socket.MSG_DONTWAIT:
            self.left -= 1
            if self.left:
                raise BlockingIOError
        else:
            self.slept += 1
        packet = encode_small(Message(1, 7, True), 0)
        room[: len(packet)] = packet
        return len(packet)


@pytest.mark.parametrize("most, nth, slept", [(5, 1, 0), (5, 5, 0), (5, 6, 1), (0, 1, 1)])
def test_a_reader_sleeps_when_it_has_looked_in_vain(most, nth, slept, monkeypatch):
    monkeypatch.setattr("disttrain.comm.messaging.link.AT_MOST", 1e9)
    link = Link(Socket(nth), None, None, None, Limits(), 0.1, lambda: None)
    link.looks.most = most
    message = link.read_soon()
    assert message is not None and message.call == 7
    assert link.sock.slept == slept and link.got == 1


def test_a_reader_sleeps_when_something_else_runs_meanwhile(monkeypatch):
    monkeypatch.setattr("disttrain.comm.messaging.link.AT_MOST", -1.0)
    link = Link(Socket(5), None, None, None, Limits(), 0.1, lambda: None)
    link.looks.most = 5
    assert link.read_soon() is not None
    assert link.sock.slept == 1 and link.sock.left == 4


@pytest.mark.parametrize("workers, crowded", [(1, False), (2, False), (3, True)])
def test_workers_share_processors(workers, crowded, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    with LocalEndpoint(0, b"x" * 32) as endpoint:
        monkeypatch.setattr(current(), "local_world_size", workers)
        assert endpoint._is_crowded() == crowded
