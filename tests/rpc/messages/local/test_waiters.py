"""Who reads the answers on a link, in every order of events: none is left unread."""

from __future__ import annotations

import socket

import numpy as np
import pytest

from disttrain.rpc.messages.contract.message import Limits, Message
from disttrain.rpc.messages.local import link as link_module
from disttrain.rpc.messages.local import polling as looks_module
from disttrain.rpc.messages.local import waiters as waiters_module
from disttrain.rpc.messages.local.frames import decode, encode_small
from disttrain.rpc.messages.local.link import Link
from disttrain.rpc.messages.local.waiters import Thread, Waiters
from support.interleave import Play, explore

FILES = {link_module.__file__, waiters_module.__file__}
LIMITS = Limits()
FOR_EVER = 1e9


class Socket:
    """The caller's end of a connection whose other end answers as the test says."""

    def __init__(self, play):
        self._play = play
        self.asked, self.inbox = set(), []

    def fileno(self):
        return -1

    def settimeout(self, seconds):
        assert seconds is None

    def setsockopt(self, *what):
        assert len(what) == 3

    def getsockopt(self, *what):
        return 1 << 18

    def send(self, packet, flags):
        self.asked.add(decode(memoryview(packet), None, LIMITS, LIMITS.small()).call)
        return len(packet)

    def recv_into(self, room, size, flags):
        if not self.inbox:
            if flags & socket.MSG_DONTWAIT:
                raise BlockingIOError
            self._play.wait(lambda: self.inbox)
        packet = encode_small(Message(1, self.inbox.pop(0), True), 0)
        room[: len(packet)] = packet
        return len(packet)


class Table:
    """A link whose ``calls`` are made and answered, with a pool that reads when the link is armed
    and nothing else that brings an answer: no time passes here, so no patience helps."""

    def __init__(self, play, calls, monkeypatch, pool=1):
        for module in (link_module, waiters_module):
            monkeypatch.setattr(module, "threading", play.threading)
        self.play, self.sock, self.armed = play, Socket(play), False
        self.link = Link(self.sock, None, None, None, LIMITS, 0.1, lambda: None)
        self.answers, self.nested, self.thread = set(), {}, Thread()
        self.waiters = Waiters(self.link, self.thread, self.deliver, self.arm, self.failed)
        self.calls = range(1, len(calls) + 1)
        for call, make in zip(self.calls, calls):
            play.actor(lambda call=call, make=make: make(self, call))
        for call in self.calls:
            play.actor(lambda call=call: self.answer(call))
        for _ in range(pool):
            play.actor(self.pool)

    def deliver(self, message):
        assert message.call in self.sock.asked and message.call not in self.answers
        if message.call in self.nested:  # what it carries takes a call of its own to open
            self.thread.holds()
            ask(self, self.nested[message.call])
        self.answers.add(message.call)

    def arm(self):
        self.armed = True

    def failed(self, error):
        raise error

    def answer(self, call):
        self.play.wait(lambda: call in self.sock.asked)
        self.sock.inbox.append(call)

    def pool(self):
        while not self.done():
            self.play.wait(lambda: self.done() or (self.armed and self.sock.inbox))
            if self.armed and self.sock.inbox:
                self.armed = False
                self.waiters.attend()

    def done(self):
        return len(self.answers) == len(self.calls)

    def check(self):
        assert self.done() and not self.link.due
        assert not self.link.reading.locked()


def send(table, call, awaited):
    table.link.send(Message(1, call), 0)
    if not awaited:
        table.waiters.look_out()


def wait(table, call):
    if call in table.answers:
        return
    block = table.waiters.waiter(call)
    while call not in table.answers:
        block(FOR_EVER)


def ask(table, call):
    send(table, call, True)
    wait(table, call)


def leave(table, call):
    send(table, call, False)


def nothing(table, call):
    """Another one makes this call."""


def begin_and_wait(table, call):
    send(table, call, False)
    wait(table, call)


@pytest.mark.parametrize(
    "calls",
    [(leave,), (ask, ask), (leave, ask), (leave, leave), (begin_and_wait, ask)],
    ids=lambda calls: "+".join(call.__name__ for call in calls),
)
def test_every_answer_is_read(calls, monkeypatch):
    def stage(play):
        return Table(play, calls, monkeypatch).check

    explore(stage, FILES, turns=1)
    explore(stage, FILES, turns=3, most=100)


def test_every_answer_is_read_by_who_looks_before_it_sleeps(monkeypatch):
    monkeypatch.setattr(looks_module, "NEAR", 2)
    monkeypatch.setattr(looks_module, "FAR", 2)
    monkeypatch.setattr(link_module, "AT_MOST", FOR_EVER)

    def stage(play):
        table = Table(play, (ask, leave), monkeypatch)
        table.link.looks.allowed = True
        return table.check

    explore(stage, FILES, turns=1)
    explore(stage, FILES, turns=3, most=100)


def test_an_answer_that_takes_a_call_of_its_own_keeps_nobody_waiting(monkeypatch):
    def stage(play):
        table = Table(play, (ask, leave, nothing), monkeypatch)
        table.nested[1] = 3
        return table.check

    explore(stage, FILES, turns=1, most=200)


def test_an_answer_for_which_nobody_began_to_wait_is_read(monkeypatch):
    table = Table(Play(FILES, []), [], monkeypatch)
    send(table, 1, True)  # and its deadline has passed
    assert not table.armed
    table.waiters.look_again()
    assert table.armed
    table.sock.inbox.append(1)
    table.waiters.attend()
    assert table.answers == {1}


def test_an_answer_that_overtakes_its_send_hides_no_other(monkeypatch):
    """Its reader comes and goes before the sender goes on: that others' answers are due still
    shows. (The sender finds its own answer there, and never waits.)"""
    table = Table(Play(FILES, []), [], monkeypatch)
    send(table, 1, False)
    table.armed = False
    real = table.link._send

    def send_and_read(packet, flags):
        real(packet, flags)
        table.sock.inbox.append(2)
        table.waiters.attend()

    table.link._send = send_and_read
    send(table, 2, True)
    assert table.answers == {2} and table.armed


def test_memory_is_recalled_where_a_message_could_not_be_put_together():
    class Lender:
        def __init__(self):
            self.lent, self.recalled = [], []

        def lend(self, part, to):
            if self.lent:
                raise MemoryError
            self.lent.append(64)
            return 64

        def recall(self, at):
            self.recalled.append(at)

    lender = Lender()
    link = Link(Socket(None), lender, None, None, LIMITS, 0.1, lambda: None)
    arrays = [np.zeros(100_000, np.uint8), np.zeros(100_000, np.uint8)]
    with pytest.raises(MemoryError):
        link.send(Message(1, 1, arrays=arrays), 0)
    assert lender.recalled == lender.lent == [64] and not link.due
