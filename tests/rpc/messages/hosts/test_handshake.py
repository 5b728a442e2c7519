"""Strangers and liars at the listener between hosts are refused, and the peers do not notice."""

from __future__ import annotations

import os
import pickle
import random
import socket
import ssl
import struct
import threading
import time

import grpc
import numpy as np
import pytest

from disttrain import context
from disttrain.comm.sockets import certificates
from disttrain.comm.store import hello
from disttrain.errors import CommError, MessageTooLarge, PeerFailed
from disttrain.rpc.messages.contract.message import Limits, Message
from disttrain.rpc.messages.hosts import handshake
from disttrain.rpc.messages.hosts.channels import STREAM
from disttrain.rpc.messages.hosts.endpoint import RemoteEndpoint
from disttrain.rpc.messages.hosts.frames import _HEADER, Assembler, Frames

TOKEN, OTHER = b"t" * 32, b"o" * 32

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
SOON = Limits(handshake_seconds=0.25, strangers=4)


class Victim:
    """A worker 0 that keeps what it hears, and an honest worker 1 to see that it still does."""

    def __init__(self, tls, limits=SOON):
        self.tls, self.got, self.lost = tls, [], {}
        self.answered = threading.Event()
        self.endpoint = RemoteEndpoint(0, TOKEN, limits, tls=tls)
        self.endpoint.serve(self._hear, self.lost.__setitem__)
        self.address = self.endpoint.address.partition("://")[2]
        self.honest = RemoteEndpoint(1, TOKEN, tls=tls)
        self.honest.serve(lambda peer, message: self.answered.set(), lambda peer, error: None)
        self.still_answers()

    def _hear(self, peer, message):
        if peer == 1:
            self.endpoint.send(1, Message(0, message.call, True))
        else:
            self.got.append((peer, message))

    def still_answers(self):
        self.answered.clear()
        self.honest.connect(0, self.endpoint.address)
        self.honest.send(0, Message(0, 7))
        assert self.answered.wait(10)
        assert not self.got and not self.lost

    def close(self):
        self.honest.close()
        self.endpoint.close()

    def socket(self):
        host, port = self.address.rsplit(":", 1)
        sock = socket.create_connection((host, int(port)))
        sock.settimeout(50)
        return sock

    def channel(self, token=TOKEN, worker=9):
        """A channel of somebody who knows ``token``."""
        options = [("grpc.use_local_subchannel_pool", 1)]
        if not self.tls:
            return grpc.insecure_channel(self.address, options)
        trusted = certificates.issue(TOKEN, handshake.JOB, 0).authority
        own = certificates.issue(token, handshake.JOB, worker)
        credentials = grpc.ssl_channel_credentials(trusted, own.key, own.certificate)
        name = certificates.worker_name(handshake.JOB, 0)
        options.append(("grpc.ssl_target_name_override", name))
        return grpc.secure_channel(self.address, credentials, options)


@pytest.fixture(params=[True, False], ids=["tls", "plain"])
def victim(request):
    made = Victim(request.param)
    yield made
    made.close()


@pytest.fixture
def plain():
    made = Victim(False)
    yield made
    made.close()


def end_of(sock):
    """What comes until the other side closes; the seconds that it took."""
    began, came = time.monotonic(), 0
    try:
        while data := sock.recv(1 << 16):
            came += len(data)
    except ConnectionError:
        pass
    sock.close()
    return time.monotonic() - began, came


def converse(channel, *steps):
    """Speak on a stream: each step is a frame, or makes one of the answers so far. The answers and
    how it ended."""
    frames: list = []
    more = threading.Semaphore(0)

    def said():
        while True:
            more.acquire()
            if frames[0] is None:
                return
            yield frames.pop(0)

    call = channel.stream_stream(STREAM)(said(), timeout=10)
    answers = []
    try:
        for step in steps:
            frames.append(step(answers) if callable(step) else step)
            more.release()
            if len(answers) < 2:
                answers.append(next(call))
        frames.append(None)
        more.release()
        next(call)
    except grpc.RpcError as error:
        return answers, error.code()
    except StopIteration:
        return answers, grpc.StatusCode.OK
    finally:
        call.cancel()
        frames.insert(0, None)
        more.release()
    raise AssertionError("the victim said more than it should")


def introduction(first, answers, who, token=TOKEN):
    return handshake.introduce(handshake.key(token), first, answers[0], who)


def me(worker=9, wanted=0, lane=handshake.REQUESTS):
    return handshake.Introduction(worker, wanted, lane, os.urandom(16), "grpc://127.0.0.1:1")


REFUSED = grpc.StatusCode.UNAUTHENTICATED


class TestBeforeTheConnectionStands:
    """Bytes that are not even HTTP/2, or not TLS."""

    @pytest.mark.parametrize(
        "data",
        [b"", PREFACE, PREFACE + b"\xff\xff\xff\x01", b"GET / HTTP/1.1\r\n\r\n", os.urandom(999)],
        ids=["silent", "preface", "half a frame", "http", "garbage"],
    )
    def test_it_is_closed_when_the_time_is_over(self, victim, data):
        sock = victim.socket()
        sock.sendall(data)
        seconds, came = end_of(sock)
        assert seconds < 5 and came < 200
        victim.still_answers()

    def test_who_sends_byte_by_byte_is_not_waited_for(self, victim):
        sock = victim.socket()
        closed = False
        began = time.monotonic()
        while not closed and time.monotonic() - began < 5:
            try:
                sock.send(b"\x16")
                time.sleep(0.05)
            except ConnectionError:
                closed = True
        sock.close()
        assert closed
        victim.still_answers()

    def test_many_idle_connections_are_let_go(self, victim):
        before = len(os.listdir("/proc/self/fd"))
        socks = [victim.socket() for _ in range(200)]
        victim.still_answers()
        for sock in socks:
            end_of(sock)
        context.wait_until(
            lambda: len(os.listdir("/proc/self/fd")) <= before + 2, lambda: "descriptors", 10
        )


class TestTLS:
    """Who cannot show a certificate made of the token does not get past TLS."""

    @pytest.fixture
    def victim(self):
        made = Victim(True)
        yield made
        made.close()

    @pytest.mark.parametrize("token", [None, OTHER], ids=["no certificate", "another authority"])
    def test_strangers_see_nothing(self, victim, token, tmp_path):
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        tls.set_alpn_protocols(["h2"])
        if token is not None:
            own = certificates.issue(token, handshake.JOB, 1)
            (tmp_path / "own.pem").write_bytes(own.certificate + own.key)
            tls.load_cert_chain(tmp_path / "own.pem")
        with victim.socket() as raw, tls.wrap_socket(raw) as sock:
            assert sock.version() == "TLSv1.3"
            try:
                sock.sendall(PREFACE)
                assert sock.recv(100) == b""
            except (ssl.SSLError, ConnectionError):
                pass
        victim.still_answers()

    def test_a_worker_cannot_be_another(self, victim):
        """It knows the token, so only its certificate says who it is."""
        first = handshake.begin()
        with victim.channel(worker=5) as channel:
            answers, code = converse(
                channel, first, lambda answers: introduction(first, answers, me(worker=6))
            )
        assert len(answers) == 1 and code is REFUSED
        victim.still_answers()

    def test_a_server_of_another_job_is_not_believed(self, victim):
        with RemoteEndpoint(2, OTHER) as liar:
            liar.serve(lambda *_: None, lambda *_: None)
            with pytest.raises(PeerFailed, match="rank 2 failed"):
                victim.honest.connect(2, liar.address)
        victim.still_answers()

    def test_a_server_that_is_another_worker_is_not_believed(self, victim):
        with RemoteEndpoint(2, TOKEN) as other:
            other.serve(lambda *_: None, lambda *_: None)
            with pytest.raises(PeerFailed, match="rank 3 failed"):
                victim.honest.connect(3, other.address)


class TestHandshake:
    """Without TLS the streams' own handshake stands alone."""

    def test_a_wrong_token_is_refused_on_both_sides(self, plain):
        with RemoteEndpoint(2, OTHER, tls=False) as liar:
            liar.serve(lambda *_: None, lambda *_: None)
            with pytest.raises(PeerFailed, match="does not know the workers' token"):
                liar.connect(0, plain.endpoint.address)
            with pytest.raises(PeerFailed, match="does not know the workers' token"):
                plain.honest.connect(2, liar.address)
        first = handshake.begin()
        forged = bytes(32) + bytes(32) + me().pack()
        with plain.channel() as channel:
            assert converse(channel, first, forged)[1] is REFUSED
        plain.still_answers()

    @pytest.mark.parametrize("first", [b"", b"\x00" * 64, os.urandom(64), b"x" * (1 << 20)])
    def test_garbage_is_refused(self, plain, first):
        with plain.channel() as channel:
            answers, code = converse(channel, first)
        assert answers == [] and code is REFUSED
        plain.still_answers()

    def test_a_replayed_handshake_is_refused(self, plain):
        """All that an honest worker has said, said once more."""
        first, third = handshake.begin(), []

        def honest(answers):
            third.append(introduction(first, answers, me()))
            return third[0]

        with plain.channel() as channel:
            answers, _ = converse(channel, first, honest)
            assert len(answers) == 2  # it was welcome
        context.wait_until(lambda: 9 in plain.lost, lambda: "its end", 50)
        plain.lost.clear()
        with plain.channel() as channel:
            answers, code = converse(channel, first, third[0])
        assert len(answers) == 1 and code is REFUSED
        plain.still_answers()

    def test_a_reflected_proof_is_refused(self, plain):
        """What the victim itself has proved is no proof of the other side."""
        first = handshake.begin()

        def reflected(answers):
            return answers[0][24:56] + bytes(32) + me().pack()

        with plain.channel() as channel:
            assert converse(channel, first, reflected)[1] is REFUSED
        plain.still_answers()

    def test_a_changed_introduction_is_refused(self, plain):
        first = handshake.begin()

        def changed(answers):
            return introduction(first, answers, me(worker=9))[: hello.PROOF_BYTES + 32] + (
                me(worker=1).pack()
            )

        with plain.channel() as channel:
            assert converse(channel, first, changed)[1] is REFUSED
        plain.still_answers()

    @pytest.mark.parametrize("wrong", [{"wanted": 4}, {"lane": 9}])
    def test_who_wants_somebody_else_is_refused(self, plain, wrong):
        first = handshake.begin()
        with plain.channel() as channel:
            _, code = converse(
                channel, first, lambda answers: introduction(first, answers, me(**wrong))
            )
        assert code is REFUSED
        plain.still_answers()

    def test_strangers_who_say_nothing_keep_nobody_out(self, plain):
        """More streams than may be in their handshake at once, all silent."""
        with plain.channel() as channel:
            silent = threading.Event()
            for _ in range(12):
                channel.stream_stream(STREAM)(iter(silent.wait, None))
            with RemoteEndpoint(2, TOKEN, tls=False) as newcomer:
                newcomer.serve(lambda *_: None, lambda *_: None)
                newcomer.connect(0, plain.endpoint.address)
            silent.set()


class Bomb:
    """Leaves a file where it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_nothing_of_a_stranger_is_unpickled(victim, tmp_path):
    canary = tmp_path / "canary"
    bomb = pickle.dumps(Bomb(canary))
    message = Frames(Message(1, 1, payload=bomb), Limits(), "x").only
    with victim.channel(OTHER) as channel:
        for frames in (
            (bomb,),
            (message,),
            (handshake.begin(), bomb),
            (handshake.begin(), message),
        ):
            _, code = converse(channel, *frames)
            assert code in (REFUSED, grpc.StatusCode.UNAVAILABLE)
    with victim.socket() as sock:
        sock.sendall(bomb)
    victim.still_answers()
    assert not canary.exists()


class TestPeersThatLie:
    """A worker with the token that breaks the protocol is lost; it takes nothing else with it."""

    def say(self, victim, *frames):
        first = handshake.begin()
        with victim.channel() as channel:
            converse(channel, first, lambda answers: introduction(first, answers, me()), *frames)
        context.wait_until(lambda: 9 in victim.lost, lambda: "the loss", 50)
        return str(victim.lost.pop(9))

    def test_announced_lengths_are_held_against_the_limits(self, plain):
        for sizes, limit in (
            ((0, 0, 1 << 62, 0), "head_bytes"),
            ((0, 0, 0, 1 << 62), "payload_bytes"),
            ((1 << 31, 1 << 33, 0, 0), "arrays"),
        ):
            arrays, table, head, payload = sizes
            frame = _HEADER.pack(0, 1, 0, arrays, 1, table, head, payload)
            assert limit in self.say(plain, frame)
        row = struct.pack("<BBQQ", 9, 2, 1 << 40, 1 << 20)
        frame = _HEADER.pack(0, 1, 0, 1, 1, len(row), 0, 0) + row
        assert "message_bytes" in self.say(plain, frame)
        plain.still_answers()

    def test_frames_larger_than_any_of_ours_are_refused(self, plain):
        self.say(plain, bytes(3 << 20))
        plain.still_answers()

    def test_an_answer_among_requests_is_refused(self, plain):
        frame = Frames(Message(1, 1, True), Limits(), "x").only
        assert "an answer among requests" in self.say(plain, frame)
        plain.still_answers()


def test_frames_at_random_raise_nothing_else():
    """Thousands of frames that nearly are right: complete, too large, or told to be broken."""
    rng = random.Random(0)
    limits = Limits(message_bytes=1 << 20, payload_bytes=1 << 19, head_bytes=1 << 16, arrays=64)
    good = [
        Frames(Message(1, 2, False, b"head", b"payload", arrays), limits, "x").only
        for arrays in ([], [np.zeros(3)], [np.zeros((2, 0)), np.ones(4, "i1"), np.array(1.0)])
    ]
    outcomes = set()
    for _ in range(4000):
        frame = bytearray(rng.choice(good))
        for _ in range(rng.randrange(1, 4)):
            frame[rng.randrange(min(len(frame), 60))] = rng.choice((0, 1, 2, 127, 255))
        if rng.random() < 0.2:
            del frame[rng.randrange(len(frame)) :]
        try:
            message = Assembler(limits, "fuzz").add(bytes(frame))
            outcomes.add("part" if message is None else "whole")
        except MessageTooLarge:
            outcomes.add("too large")
        except CommError:
            outcomes.add("broken")
    assert outcomes == {"part", "whole", "too large", "broken"}


def test_the_sender_is_told_what_the_receiver_does_not_take(victim):
    small = Limits(payload_bytes=1000, message_bytes=2000)
    heard = []
    with RemoteEndpoint(3, TOKEN, small, tls=victim.tls) as careful:
        careful.serve(lambda peer, message: heard.append(message), lambda peer, error: None)
        victim.honest.connect(3, careful.address)
        with pytest.raises(MessageTooLarge, match=r"1001 bytes of payload; at most 1000"):
            victim.honest.send(3, Message(0, 0, payload=bytes(1001)))
        victim.honest.send(3, Message(0, 0, payload=bytes(1000)))
        context.wait_until(lambda: heard, lambda: "the message", 50)
