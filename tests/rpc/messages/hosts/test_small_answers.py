"""Small answers on a link: whole frames after their length, and nothing else."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from disttrain.errors import CommError
from disttrain.rpc.messages.contract.message import Limits, Message
from disttrain.rpc.messages.hosts.frames import FRAME, Frames
from disttrain.rpc.messages.hosts.small_answers import LANE, Answers, IncomingAnswers

pytestmark = pytest.mark.simulated


class Pipe:
    """A link whose other end is in this test."""

    def __init__(self, fails=False):
        self.data, self.closed, self.fails = bytearray(), False, fails

    def send(self, data):
        if self.fails:
            raise OSError("gone")
        self.data += data

    def wait(self):
        pass

    def receive(self, into):
        if len(self.data) < len(into):
            raise EOFError
        into[:] = self.data[: len(into)]
        del self.data[: len(into)]

    def shut(self):
        self.closed = True


def frame(message):
    return Frames(message, Limits(), "test").only


def test_answers_come_as_they_were_sent():
    link = Pipe()
    sending, receiving = Answers(link), IncomingAnswers(link, Limits(), "test")
    sent = [
        Message(1, 10, True, b"head", b"payload", [np.arange(3.0)]),
        Message(2, 11, True),
    ]
    for message in sent:
        sending.send(frame(message))
    for want in sent:
        got = receiving.read()
        assert (got.kind, got.call, got.answers) == (want.kind, want.call, True)
        assert (bytes(got.head), bytes(got.payload)) == (want.head, want.payload)
        assert [a.tolist() for a in got.arrays] == [a.tolist() for a in want.arrays]
    with pytest.raises(EOFError):
        receiving.read()
    assert receiving.lane == LANE


def test_half_an_answer_ends_the_link():
    link = Pipe(fails=True)
    with pytest.raises(OSError):
        Answers(link).send(b"frame")
    assert link.closed


def test_what_is_no_small_answer_is_refused():
    link = Pipe()
    link.data += struct.pack("<I", FRAME + 1)
    with pytest.raises(CommError, match=f"test: an answer of {FRAME + 1} bytes where small ones"):
        IncomingAnswers(link, Limits(), "test").read()
    link = Pipe()
    first = next(iter(Frames(Message(1, 1, True, b"", bytes(2 * FRAME)), Limits(), "test")))
    Answers(link).send(bytes(first))
    with pytest.raises(CommError, match="a part of an answer where whole ones come"):
        IncomingAnswers(link, Limits(), "test").read()


def test_who_reads_may_stop_the_link():
    link = Pipe()
    receiving = IncomingAnswers(link, Limits(), "test")
    assert receiving.is_active()
    receiving.over()
    assert receiving.is_active()
    receiving.cancel()
    assert not receiving.is_active()
