"""One connection by itself: who waits looks before it sleeps; its end comes once."""

from __future__ import annotations

import os
import socket

import numpy as np
import pytest

from disttrain.rpc.messages.contract.message import Limits, Message
from disttrain.rpc.messages.local import link as links
from disttrain.rpc.messages.local.frames import STREAMED, encode, encode_small, pieces_of
from disttrain.rpc.messages.local.link import MANY, Closed, Link


def linked(sock):
    return Link(sock, None, None, None, Limits(), 0.1, lambda: None)


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

    def getsockopt(self, *what):
        return 1 << 18

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


@pytest.mark.parametrize("nth, slept", [(1, 0), (5, 0), (6, 1)])
def test_a_reader_sleeps_when_it_has_looked_in_vain(nth, slept, monkeypatch):
    monkeypatch.setattr("disttrain.rpc.messages.local.polling.NEAR", 5)
    monkeypatch.setattr("disttrain.rpc.messages.local.link.AT_MOST", 1e9)
    link = linked(Socket(nth))
    link.looks.allowed = True
    message = link.read_soon()
    assert message is not None and message.call == 7
    assert link.sock.slept == slept and link.got == 1
    assert (link.looks.now() > 5) == slept  # it would have been found


def test_a_reader_that_is_not_to_look_sleeps():
    link = linked(Socket(1))
    assert link.read_soon() is not None and link.sock.slept == 1


def test_a_reader_sleeps_when_something_else_runs_meanwhile(monkeypatch):
    monkeypatch.setattr("disttrain.rpc.messages.local.link.AT_MOST", -1.0)
    link = linked(Socket(5))
    link.looks.allowed = True
    assert link.read_soon() is not None
    assert link.sock.slept == 1 and link.sock.left == 4


def pair():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return linked(ours), theirs


def test_giving_up_a_second_time_forgets_no_other_one_of_the_same_number():
    link, theirs = pair()
    forgotten = []
    link.give_up(forgotten.append)
    again = os.dup(theirs.fileno())  # the number that has become free
    try:
        link.give_up(forgotten.append)
        link.begin(lambda: forgotten.append("is watched"))
        link.watch_again(lambda fd, events: forgotten.append("is watched again"), 1)
        assert again == link.fd and forgotten == [link.fd] and link.over
    finally:
        os.close(again)
        theirs.close()


def test_the_descriptor_of_a_link_on_which_somebody_reads_is_kept_until_he_stops():
    link, theirs = pair()
    with theirs:
        assert link.reading.acquire(False)
        link.give_up(lambda fd: None)
        assert not link.over and os.fstat(link.fd)
        with pytest.raises(Closed):
            link.read()
        link.stop_reading()
        assert link.over and theirs.recv(1) == b""


def unread(link):
    """So many answers may lie there until somebody has to read."""
    link.sent = link.got
    while not link.is_full:
        link.sent += 1
    return link.sent - link.got


def test_the_longer_answers_were_lately_the_fewer_lie_unread(monkeypatch):
    link, theirs = pair()
    try:
        found = [unread(link)]
        for size in (10, 40_000, 10):
            theirs.send(encode_small(Message(1, 7, True, payload=bytes(size)), size))
            assert len(link.read().payload) == size
            found.append(unread(link))
        assert found[0] == MANY >= found[1] > found[2] == found[3] >= 1
        assert found[2] * 40_000 <= link.sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        monkeypatch.setattr(links, "LATELY", -1.0)
        link.look_back()
        assert unread(link) == MANY
    finally:
        link.give_up(lambda fd: None)
        theirs.close()


def test_after_an_answer_in_pieces_none_lies_unread():
    link, theirs = pair()
    try:
        answer = Message(1, 7, True, arrays=[np.arange(20_000.0)])
        first, pieces = encode(answer, lambda part: STREAMED)
        for packet in (first, *pieces_of(pieces)):
            theirs.send(packet)
        while (message := link.read()) is None:
            pass
        assert np.array_equal(message.arrays[0], answer.arrays[0]) and unread(link) == 0
    finally:
        link.give_up(lambda fd: None)
        theirs.close()
