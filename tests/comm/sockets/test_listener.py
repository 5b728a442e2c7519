"""Strangers and liars at a listener are refused within their time, and are told nothing of use."""

from __future__ import annotations

import logging
import random
import socket
import struct
import time

import pytest
from comm.sockets.pairs import OTHER, TOKEN, Host, identity

from disttrain.comm.sockets import handshake
from disttrain.comm.sockets.handshake import Refused
from disttrain.comm.sockets.listener import call_on
from disttrain.comm.store import hello

SOON = 0.25


@pytest.fixture(params=[False, True], ids=["plain", "sealed"])
def tls(request):
    return request.param


@pytest.fixture
def host(tls):
    with Host(tls, seconds=SOON, strangers=4) as host:
        yield host
        there, here = host.pair(tls)  # honest ones still get in
        there.send(b"ok")
        got = bytearray(2)
        here.receive(memoryview(got))
        assert got == b"ok"
        there.close()
        here.close()


def ends(sock):
    """What is still said until the listener closes the connection."""
    got = b""
    try:
        while data := sock.recv(65536):
            got += data
    except ConnectionResetError:
        pass
    return got


class TestStrangers:
    def test_another_token_gets_nowhere(self, host, tls):
        with pytest.raises(Refused):
            host.call(tls, token=OTHER, seconds=0.1)
        assert not host.asked and host.links.empty()

    def test_another_purpose_gets_nowhere(self, host, tls):
        with pytest.raises(Refused):
            host.call(tls, purpose="other things", seconds=0.1)
        assert not host.asked

    def test_tls_on_one_side_only_gets_nowhere(self, host, tls):
        with pytest.raises(Refused):
            host.call(not tls, seconds=0.1)
        assert not host.asked

    def test_silence_ends_in_time(self, host):
        with host.socket() as sock:
            began = time.monotonic()
            assert ends(sock) == b""
            assert time.monotonic() - began < 20 * SOON

    def test_dripping_bytes_win_no_time(self, host):
        with host.socket() as sock:
            try:
                for byte in hello.client_hello(host.me.job, 0, hello.ROLE_DATA)[:-1]:
                    sock.sendall(bytes([byte]))
                    time.sleep(SOON / 20)
            except OSError:
                pass
            assert ends(sock) == b""

    def test_garbage_is_not_answered(self, host):
        choose = random.Random(1)
        for _ in range(40):
            with host.socket() as sock:
                try:
                    sock.sendall(choose.randbytes(choose.choice((64, 96, 4096))))
                    sock.shutdown(socket.SHUT_WR)
                except OSError:  # refused already
                    pass
                assert len(ends(sock)) < 64  # at most an alert of TLS
        assert not host.asked

    def test_a_giant_record_of_tls_is_not_waited_for(self, host):
        with host.socket() as sock:
            sock.sendall(b"\x16\x03\x01\xff\xff" + bytes(100))
            assert len(ends(sock)) < 64

    def test_crowds_push_out_their_oldest(self, host, tls):
        crowd = [host.socket() for _ in range(20)]
        for end in host.pair(tls, seconds=10):
            end.close()
        for sock in crowd:
            sock.close()

    def test_refusals_are_logged_once_a_minute(self, host, caplog):
        with caplog.at_level(logging.WARNING, "disttrain.links"):
            for _ in range(5):
                with host.socket() as sock:
                    sock.sendall(bytes(64))
                    ends(sock)
        assert len(caplog.records) == 1
        assert "refused a connection from 127.0.0.1" in caplog.records[0].message


class TestReplays:
    """On plain links, where an attacker sees everything."""

    @pytest.fixture
    def tls(self):
        return False

    def talk(self, host, said=b""):
        """An honest conversation, by hand: the frames of the client."""
        me = identity(1, False)
        steps = handshake.ask(me, 0, said)
        sent = []
        with host.socket() as sock:
            sends, wants = next(steps)
            try:
                while True:
                    sent.append(sends)
                    sock.sendall(sends)
                    got = b""
                    while len(got) < wants:
                        data = sock.recv(wants - len(got))
                        assert data
                        got += data
                    sends, wants = steps.send(got)
            except StopIteration:
                pass
        host.links.get(timeout=10).close()
        host.asked.clear()
        return sent

    def test_a_recorded_conversation_proves_nothing(self, host):
        sent = self.talk(host)
        with host.socket() as sock:
            sock.sendall(sent[0])
            assert len(sock.recv(hello.SIZE, socket.MSG_WAITALL)) == hello.SIZE
            sock.sendall(sent[1])
            assert ends(sock) == b""
        assert not host.asked

    def test_a_door_cannot_be_made_to_answer_itself(self, host):
        with host.socket() as sock:
            first = hello.client_hello(host.me.job, 0, hello.ROLE_DATA)
            sock.sendall(first)
            answer = sock.recv(hello.SIZE, socket.MSG_WAITALL)
            proof = hello.client_proof(host.me.key, first, answer)
            assert proof is not None
            sock.sendall(answer[24:56] + bytes(64))  # its own proof
            assert ends(sock) == b""

    @pytest.mark.parametrize("length", [0, 35, 2049, 65535])
    def test_lengths_that_fit_nothing_are_refused(self, host, length):
        with host.socket() as sock:
            first = hello.client_hello(host.me.job, 0, hello.ROLE_DATA)
            sock.sendall(first)
            answer = sock.recv(hello.SIZE, socket.MSG_WAITALL)
            proof = hello.client_proof(host.me.key, first, answer)
            sock.sendall(proof + bytes(32) + struct.pack("<H", length) + bytes(2000))
            assert ends(sock) == b""
        assert not host.asked

    def test_a_changed_introduction_is_refused(self, host):
        steps = handshake.ask(identity(1, False), 0, b"said")
        with host.socket() as sock:
            sends, wants = next(steps)
            sock.sendall(sends)
            third, _ = steps.send(sock.recv(wants, socket.MSG_WAITALL))
            sock.sendall(third[:-1] + b"!")
            assert ends(sock) == b""
        assert not host.asked


class TestLiars:
    """They know the token."""

    def test_another_number_than_the_certificates_is_refused(self):
        with Host(True) as host:
            me = identity(1, True)
            me.number = 2
            with pytest.raises(Refused, match="its certificate is not number 2's"):
                call_on(me, 0, host.listener.host, host.listener.port, b"")

    def test_somebody_else_was_wanted(self, tls):
        with Host(tls) as host:
            with pytest.raises(Refused):
                host.call(tls, peer=3, seconds=0.1)
            assert not host.asked

    def test_who_is_not_admitted_is_told_why(self, tls):
        def admit(number, said):
            raise Refused("we are closed")

        with Host(tls, admit) as host:
            with pytest.raises(Refused, match="it refused: we are closed"):
                host.call(tls)
            assert host.links.empty()

    def test_a_door_that_does_not_know_the_token_is_not_believed(self, tls):
        with Host(tls) as host:
            host.me.key = hello.derive_key(OTHER, "links for tests")
            with pytest.raises(Refused, match="does not know the token"):
                host.call(tls, token=TOKEN)
