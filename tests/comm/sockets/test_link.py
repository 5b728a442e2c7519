"""Links carry bytes in both directions, plain and sealed, and end for both ends."""

from __future__ import annotations

import os
import random
import socket
import threading

import numpy as np
import pytest
from comm.sockets.pairs import Host

from disttrain.comm.sockets import encryption
from disttrain.comm.sockets.encryption import Broken, Seal
from disttrain.comm.sockets.handshake import Keys
from disttrain.comm.sockets.link import PATIENCE, Closed, Link


@pytest.fixture(params=[False, True], ids=["plain", "sealed"])
def tls(request):
    return request.param


@pytest.fixture
def ends(tls):
    with Host(tls) as host:
        a, b = host.pair(tls)
        yield a, b
        a.close()
        b.close()


def beside(body, *args):
    thread = threading.Thread(target=body, args=args, daemon=True)
    thread.start()
    return thread


class TestBytes:
    def test_both_ends_know_each_other(self, tls):
        with Host(tls, lambda number, said: b"hello " + said) as host:
            there, answer = host.call(tls, number=7, said=b"seven")
            with_us = host.links.get(timeout=10)
            assert (answer, there.number, there.said) == (b"hello seven", 0, b"hello seven")
            assert (with_us.number, with_us.said) == (7, b"seven")
            assert host.asked == [(7, b"seven")]
            there.close()
            with_us.close()

    def test_arrive_in_any_cut_and_both_ways(self, ends):
        choose = random.Random(1)
        data = np.frombuffer(choose.randbytes(3 << 20), np.uint8)

        def send(link):
            at = 0
            while at < len(data):
                cuts = [choose.choice((0, 1, 100, 70_000, 262_144, 600_000)) for _ in range(3)]
                parts = []
                for cut in cuts:
                    parts.append(data[at : at + cut].data)
                    at += cut
                link.send(*parts)

        def receive(link, got):
            at = 0
            while at < len(data):
                size = min(len(data) - at, choose.choice((1, 99, 65_536, 300_000, 1_000_000)))
                link.receive(got[at : at + size].data)
                at += size

        a, b = ends
        got = [np.zeros_like(data), np.zeros_like(data)]
        threads = [
            beside(send, a), beside(send, b), beside(receive, a, got[0]), beside(receive, b, got[1])
        ]  # fmt: skip
        for thread in threads:
            thread.join(30)
        assert all((one == data).all() for one in got)

    def test_what_goes_at_once_waits_for_nobody(self, ends):
        a, b = ends
        room = bytearray(10)
        assert b.pull(memoryview(room)) == 0
        block = memoryview(bytes(1 << 20))
        sent = 0
        while done := a.push(block):
            sent += done
        assert not a.push(block)
        got = 0
        into = memoryview(bytearray(1 << 20))
        while got < sent:
            got += b.pull(into)
            a.flush()
        assert a.flush() and got == sent

    def test_arrays_of_several_types_need_no_copy(self, ends):
        a, b = ends
        sent = np.arange(12.0).reshape(3, 4)
        got = np.empty((3, 4))
        a.send(b"", sent.data)
        b.receive(got.data)
        assert (got == sent).all()


class TestTheEnd:
    def test_what_was_sent_before_it_arrives(self, ends):
        a, b = ends
        a.send(b"last")
        a.close()
        got = bytearray(4)
        b.receive(memoryview(got))
        assert got == b"last"
        with pytest.raises(Closed, match="its end of the connection was closed"):
            b.receive(memoryview(got))

    def test_who_waits_here_is_told(self, ends):
        a, _ = ends
        told = []

        def wait():
            try:
                a.receive(memoryview(bytearray(1)))
            except Closed as error:
                told.append(error)

        thread = beside(wait)
        a.shut()
        thread.join(10)
        assert len(told) == 1
        with pytest.raises(Closed):
            a.send(b"more")

    def test_a_full_link_that_ends_lets_the_sender_go(self, ends):
        a, b = ends
        threading.Timer(2 * PATIENCE, b.close).start()
        with pytest.raises(Closed):
            a.send(bytes(64 << 20))

    def test_nothing_is_left(self, tls):
        before = set(os.listdir("/proc/self/fd"))
        threads = threading.active_count()
        with Host(tls) as host:
            for _ in range(3):
                for end in host.pair(tls):
                    end.close()
        assert threading.active_count() == threads
        assert set(os.listdir("/proc/self/fd")) == before


class TestSeal:
    KEY = bytes(range(32))

    def sealed(self, seal, text):
        out = memoryview(bytearray(len(text) + encryption.OVERHEAD))
        assert seal.seal(memoryview(text), out) == len(out)
        return out

    def opened(self, seal, record):
        out = bytearray(len(record) - encryption.OVERHEAD)
        seal.open(memoryview(record), memoryview(out))
        return bytes(out)

    def test_opens_what_was_sealed_in_its_order_only(self):
        a, b = Seal(self.KEY), Seal(self.KEY)
        first, second = self.sealed(a, b"one"), self.sealed(a, b"two")
        assert b"one" not in bytes(first)
        with pytest.raises(Broken):
            self.opened(Seal(self.KEY), second)
        assert self.opened(b, first) == b"one"
        with pytest.raises(Broken):
            self.opened(b, first)

    def test_every_changed_bit_is_noticed(self):
        record = self.sealed(Seal(self.KEY), b"some text")
        for at in range(4, len(record)):
            changed = bytearray(record)
            changed[at] ^= 1 << at % 8
            with pytest.raises(Broken):
                self.opened(Seal(self.KEY), changed)

    def test_keys_are_renewed_on_both_ends(self, monkeypatch):
        monkeypatch.setattr(encryption, "RENEW", 3)
        a, b = Seal(self.KEY), Seal(self.KEY)
        records = [bytes(self.sealed(a, b"same")) for _ in range(10)]
        assert len(set(records)) == 10
        assert [self.opened(b, record) for record in records] == [b"same"] * 10
        assert a._key != self.KEY

    @pytest.mark.parametrize(
        "size", [0, encryption.TAG, encryption.MOST + encryption.TAG + 1, 0xFFFFFFFF]
    )
    def test_sizes_that_no_record_has_are_refused(self, size):
        with pytest.raises(Broken):
            encryption.record_size(memoryview(encryption.LENGTH.pack(size)))


class TestSealedLinkUnderAttack:
    """Somebody between the two ends."""

    @pytest.fixture
    def wire(self):
        mine, theirs = socket.socketpair()
        listener = socket.create_server(("127.0.0.1", 0))
        mine.close()
        theirs.close()
        a = socket.create_connection(listener.getsockname())
        b = listener.accept()[0]
        listener.close()
        link = Link(a, 1, b"", Keys(b"s" * 32, b"r" * 32))
        yield link, b
        link.close()
        b.close()

    def test_what_is_not_sealed_is_not_taken(self, wire):
        link, attacker = wire
        attacker.sendall(encryption.LENGTH.pack(30) + bytes(30))
        with pytest.raises(Broken, match="does not fit its seal"):
            link.receive(memoryview(bytearray(4)))

    @pytest.mark.parametrize("room", [1, 4])
    def test_nothing_is_taken_after_what_was_not_sealed(self, wire, room):
        link, attacker = wire
        attacker.sendall(encryption.LENGTH.pack(20) + bytes(20))
        with pytest.raises(Broken, match="does not fit its seal"):
            link.receive(memoryview(bytearray(room)))
        with pytest.raises(Closed):
            link.receive(memoryview(bytearray(room)))

    def test_a_giant_record_is_not_waited_for(self, wire):
        link, attacker = wire
        attacker.sendall(b"\xff" * 8)
        with pytest.raises(Broken, match="a record of"):
            link.receive(memoryview(bytearray(4)))

    def test_nothing_readable_is_sent(self, wire):
        link, attacker = wire
        link.send(b"a secret text")
        said = attacker.recv(1000)
        assert len(said) == 13 + encryption.OVERHEAD and b"secret" not in said


def test_lost_packets_do_not_end_a_link_on_which_nothing_happens(ends):
    """Where one packet in twenty is lost, a probe or its answer is in one case of ten. A link is
    probed once a second: of a thousand idle links less than one in a hundred ends in a day."""
    lost = 1 - 0.95**2
    for link in ends:
        probes = link.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT)
        every = link.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
        assert link.sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert lost**probes * 86_400 * 1000 < 0.01 and every * probes <= 15
