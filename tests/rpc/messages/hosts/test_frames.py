"""Messages become frames and messages again, whatever their sizes are beside a frame's."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from rpc.messages.conformance import same, samples

from disttrain import context
from disttrain.comm.sockets import certificates
from disttrain.errors import CommError
from disttrain.rpc.messages.contract.message import Limits, Message
from disttrain.rpc.messages.hosts import frames as streams
from disttrain.rpc.messages.hosts.frames import Assembler, Frames
from disttrain.rpc.messages.hosts.lanes import Bells, Outgoing, StreamEnded
from disttrain.rpc.messages.hosts.threads import Threads

LIMITS = Limits()


@pytest.fixture(params=[64, 100, 4096])
def size(request, monkeypatch):
    monkeypatch.setattr(streams, "FRAME", request.param)
    return request.param


def messages(rng):
    """Random ones; their parts are often just as large as a frame, or one byte off."""
    kinds = list(samples())
    for _ in range(150):
        parts = [rng.choice((0, 1, 23, 24, 63, 64, 65, 100, 4055, 4096, 9000)) for _ in range(2)]
        head, payload = (bytes(rng.randrange(256) for _ in range(part)) for part in parts)
        arrays = rng.sample(kinds, rng.choice((0, 0, 1, 3, 9)))
        kind, call, answers = rng.randrange(256), rng.getrandbits(64), rng.random() < 0.5
        yield Message(kind, call, answers, head, payload, arrays)


def test_frames_of_any_size_give_the_message_back(size):
    assembler = Assembler(LIMITS, "test")
    for message in messages(random.Random(size)):
        made = Frames(message, LIMITS, "test")
        frames = list(made)
        assert sum(map(len, frames)) == made.size
        assert all(len(frame) == size for frame in frames[:-1])
        if made.only is not None:
            assert frames == [made.only]
        came = [assembler.add(frame) for frame in frames]
        assert came[:-1] == [None] * (len(frames) - 1)
        last = came[-1]
        assert (last.kind, last.call, last.answers) == (
            message.kind, message.call, message.answers)  # fmt: skip
        assert last.head == message.head and bytes(last.payload) == message.payload
        assert len(last.arrays) == len(message.arrays)
        assert all(map(same, last.arrays, message.arrays))
        assert all(array.flags.writeable for array in last.arrays)


def test_bytes_after_the_end_break_the_stream():
    message = Message(1, 1, arrays=[np.ones(3)])
    frame = Frames(message, LIMITS, "test").only
    with pytest.raises(CommError, match="5 bytes after the end"):
        Assembler(LIMITS, "test").add(frame + b"extra")


def test_a_stream_that_ends_lets_its_senders_go():
    large = Frames(Message(1, 1, payload=bytes(3 << 20)), LIMITS, "test")
    outgoing, told = Outgoing(0, LIMITS), []

    def send():
        try:
            outgoing.send(large, lambda: "a peer")
        except StreamEnded as error:
            told.append(error)

    sender = threading.Thread(target=send)
    sender.start()
    assert len(next(outgoing)) == streams.FRAME
    outgoing.end()
    sender.join(10)
    assert told and not sender.is_alive()
    with pytest.raises(StreamEnded):
        outgoing.send(large, lambda: "a peer")


def test_an_answer_goes_to_who_sleeps_for_it():
    delivered = []
    bells = Bells(delivered.append)
    bell, other = bells.hang(5), bells.hang(6)
    answer = Message(0, 5, True)
    assert not bells.give(answer)  # nobody sleeps yet
    given = threading.Thread(
        target=lambda: context.wait_until(lambda: bells.give(answer), lambda: "a sleeper", 50)
    )
    given.start()
    context.wait_until(lambda: bool(delivered), lambda: "the answer", 10, bell)
    given.join()
    assert delivered == [answer]
    del other


def test_threads_grow_and_end():
    threads, gate, ran = Threads("test"), threading.Event(), []
    for i in range(5):
        threads.run(lambda i=i: (gate.wait(10), ran.append(i)))
    assert threads.submit(max, 2, 3).result(10) == 3  # though all others wait
    gate.set()
    threads.close()
    context.wait_until(lambda: threads.alive == 0, lambda: "all threads to end", 50)
    assert sorted(ran) == [0, 1, 2, 3, 4]


def test_all_who_know_the_secret_have_one_authority():
    job = bytes(16)
    a, b = (certificates.issue(b"s" * 32, job, worker) for worker in (1, 2))
    other = certificates.issue(b"x" * 32, job, 1)
    authority, strange = (x509.load_pem_x509_certificate(c.authority) for c in (a, other))
    for made in (a, b):
        leaf = x509.load_pem_x509_certificate(made.certificate)
        leaf.verify_directly_issued_by(authority)
        with pytest.raises(InvalidSignature):
            leaf.verify_directly_issued_by(strange)
    assert a.key != certificates.issue(b"s" * 32, job, 1).key
