"""Strangers and damaged peers at the local listener: refused before anything is read of them."""

from __future__ import annotations

import array
import os
import random
import socket
import struct

import numpy as np
import pytest
from rpc.messages.nodes import TOKEN

from disttrain import context
from disttrain.comm.sockets.proof import shared_token
from disttrain.comm.store import HashStore, hello
from disttrain.errors import CommError, PeerFailed
from disttrain.rpc.messages.contract.message import Limits, Message
from disttrain.rpc.messages.local import frames, handshake, pool
from disttrain.rpc.messages.local import listener as listening
from disttrain.rpc.messages.local.blocks import Lender
from disttrain.rpc.messages.local.endpoint import LocalEndpoint

WRONG = bytes(32)
KEY = hello.derive_key(TOKEN, "rpc")


class Server:
    """An endpoint that serves; ``got`` and ``lost`` as they come."""

    def __init__(self, **limits):
        self.endpoint = LocalEndpoint(1, TOKEN, Limits(**limits))
        self.got, self.lost = [], {}
        self.endpoint.serve(lambda peer, message: self.got.append(message), self.lost.__setitem__)

    def stranger(self):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.connect(handshake._name(self.endpoint.address))  # waits where many have come at once
        sock.settimeout(50)
        return sock

    def works(self):
        """An honest peer is heard."""
        before = len(self.got)
        with LocalEndpoint(7, TOKEN) as honest:
            honest.serve(lambda *message: None, lambda *lost: None)
            honest.connect(1, self.endpoint.address)
            honest.send(1, Message(0, 0))
            context.wait_until(lambda: len(self.got) > before, lambda: "a message", 50)
        return True


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(pool, "TICK", 0.05)
    made = Server(handshake_seconds=10.0)
    yield made
    made.endpoint.close()


@pytest.fixture
def hasty(monkeypatch):
    monkeypatch.setattr(pool, "TICK", 0.05)
    made = Server(handshake_seconds=0.3)
    yield made
    made.endpoint.close()


def ended(sock):
    """Is the connection closed by the other side, with nothing more said than a hello?"""
    with sock:
        try:
            said = sock.recv(1000)
            return said == b"" or (len(said) == hello.SIZE and sock.recv(1000) == b"")
        except ConnectionResetError:
            return True


GARBAGE = [
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(53),
    b"SSH-2.0-OpenSSH_9.6\r\n",
    bytes(64),
    bytes(1),
    b"\xff" * 64,
    b"\xff" * 65,
    bytes(100_000),
    b"\x80\x04\x95" + bytes(61),
    hello.client_hello(hello.job_hash("another job"), 0, hello.ROLE_RPC),
    hello.client_hello(hello.job_hash(""), 1, hello.ROLE_RPC),
    hello.client_hello(hello.job_hash(""), 0, hello.ROLE_STORE),
]


def test_garbage_ends_the_connection_at_once(server):
    for said in [*GARBAGE, *(random.Random(i).randbytes(64) for i in range(30))]:
        sock = server.stranger()
        sock.send(said)
        assert ended(sock), said
    assert server.got == [] and server.works()


def test_a_stream_socket_cannot_even_connect(server):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock, pytest.raises(OSError):
        sock.connect(handshake._name(server.endpoint.address))


def greet(sock, key=KEY):
    """A client's hello and the server's: (hello, answer, proof under ``key``)."""
    mine = hello.client_hello(hello.job_hash(""), 0, hello.ROLE_RPC)
    sock.send(mine)
    answer = sock.recv(1000)
    return mine, answer, hello._proof(key, b"client", mine, answer[8:24])


def test_a_wrong_token_is_refused_on_both_sides(server):
    sock = server.stranger()
    sock.send(greet(sock, hello.derive_key(WRONG, "rpc"))[2])
    assert ended(sock)
    with LocalEndpoint(0, WRONG) as other:
        other.serve(lambda *message: None, lambda *lost: None)
        with pytest.raises(PeerFailed, match="does not know the token"):
            other.connect(1, server.endpoint.address)
    assert server.got == [] and server.works()


def test_the_token_of_another_purpose_is_refused(server):
    sock = server.stranger()
    sock.send(greet(sock, hello.derive_key(TOKEN, "store"))[2])
    assert ended(sock)


def test_a_replayed_handshake_is_refused(server):
    first = server.stranger()
    mine, _, proof = greet(first)
    first.send(proof)
    second = server.stranger()
    second.send(mine)
    assert len(second.recv(1000)) == hello.SIZE
    second.send(proof)
    assert ended(second)
    first.close()


def test_a_reflected_proof_is_refused(server):
    """The server's own proof, and one that it was made to give for another connection's nonce."""
    one, two = server.stranger(), server.stranger()
    mine = hello.client_hello(hello.job_hash(""), 0, hello.ROLE_RPC)
    one.send(mine)
    answer = one.recv(1000)
    forged = mine[:32] + answer[8:24] + bytes(16)
    two.send(forged)
    oracle = two.recv(1000)
    one.send(oracle[24:56])
    assert ended(one)
    two.close()
    three = server.stranger()
    three.send(mine)
    three.send(three.recv(1000)[24:56])
    assert ended(three)


def test_a_listener_without_the_token_learns_nothing():
    """A caller that was given its address says hello and no more."""
    address = handshake.new_address()
    listener = handshake.listen(address)
    listener.setblocking(True)
    heard = []

    def impostor():
        for answer in (bytes(64), b"\xff" * 64, b"", None):
            sock, _ = listener.accept()
            with sock:
                mine = sock.recv(1000)
                heard.append(len(mine))
                sock.send(mine if answer is None else answer or b"?")
                heard.append(len(sock.recv(1000)))

    context.start_thread(impostor, "impostor")
    with LocalEndpoint(0, TOKEN) as caller:
        caller.serve(lambda *message: None, lambda *lost: None)
        for _ in range(4):
            with pytest.raises(PeerFailed, match="rank 1 failed: who listens"):
                caller.connect(1, address)
    context.wait_until(lambda: len(heard) == 8, lambda: "the impostor", 50)
    listener.close()
    assert heard == [64, 0] * 4


def test_a_listener_that_says_nothing_is_left_in_time():
    address = handshake.new_address()
    with handshake.listen(address):
        with LocalEndpoint(0, TOKEN, Limits(handshake_seconds=0.1)) as caller:
            caller.serve(lambda *message: None, lambda *lost: None)
            with pytest.raises(PeerFailed, match=r"handshake within 0\.1 s"):
                caller.connect(1, address)


@pytest.mark.parametrize(
    "address", ["", "local:", "tcp://1.2.3.4:5", "local:" + "x" * 900, "local:0-1:0:abc"]
)
def test_addresses_that_are_none(address):
    with LocalEndpoint(0, TOKEN) as caller:
        caller.serve(lambda *message: None, lambda *lost: None)
        with pytest.raises(CommError, match=r"not of this host|is not known"):
            caller.connect(1, address)


def test_a_worker_that_is_somebody_else_is_refused(server):
    with LocalEndpoint(0, TOKEN) as caller:
        caller.serve(lambda *message: None, lambda *lost: None)
        with pytest.raises(PeerFailed, match="rank 5 failed: worker 1 is at its address"):
            caller.connect(5, server.endpoint.address)


def test_the_silent_and_the_slow_are_cut_off_in_time(hasty):
    silent, half = hasty.stranger(), hasty.stranger()
    half.send(hello.client_hello(hello.job_hash(""), 0, hello.ROLE_RPC))
    assert ended(silent) and ended(half)
    slow = hasty.stranger()
    slow.send(b"d")
    assert ended(slow)  # a hello is one packet


def test_thousands_of_idle_connections_keep_nobody_out(server):
    listener = server.endpoint._listener
    crowd = [server.stranger() for _ in range(1500)]
    assert server.works()
    assert 0 < len(listener.strangers) <= server.endpoint.limits.strangers
    for stranger in list(listener.strangers.values()):
        stranger.deadline = 0.0  # their time is over
    context.wait_until(lambda: not listener.strangers, lambda: "strangers to go", 30)
    for sock in crowd:
        sock.close()


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def test_descriptors_of_strangers_are_not_received(server):
    server.works()
    context.wait_until(lambda: 7 in server.lost, lambda: "the honest one to leave", 50)
    before = descriptors()
    for stage in range(3):
        sock = server.stranger()
        if stage == 0:
            sock.sendmsg([bytes(64)], [(1, socket.SCM_RIGHTS, array.array("i", [0] * 100))])
        else:
            mine = hello.client_hello(hello.job_hash(""), 0, hello.ROLE_RPC)
            fds = array.array("i", [0] * 100)
            sock.sendmsg([mine], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
            answer = sock.recv(1000)
            proof = bytes(32) if stage == 1 else hello.client_proof(KEY, mine, answer)
            sock.sendmsg([proof], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        if stage < 2:
            assert ended(sock)
        else:
            sock.close()
    context.wait_until(lambda: descriptors() <= before, lambda: "descriptors to go", 50)


def test_shared_memory_that_is_none_is_refused(server):
    """More than one descriptor, a pipe, memory that could be taken away again."""
    before = None
    unsealed = os.memfd_create("x", os.MFD_ALLOW_SEALING)
    os.ftruncate(unsealed, 1 << 20)
    pipe = os.pipe()
    for fds in ([unsealed], [pipe[0]], [pipe[0], pipe[1]], [0] * 50):
        sock = server.stranger()
        sock.send(greet(sock)[2])
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        sock.sendmsg([handshake._INTRO.pack(3, 1, bytes(24))], rights)
        with sock:
            while sock.recv(1000):
                pass
        before = before or descriptors()
    context.wait_until(lambda: descriptors() <= before, lambda: "descriptors to go", 50)
    for fd in (unsealed, *pipe):
        os.close(fd)
    assert server.works()


def test_another_user_is_refused(server, monkeypatch):
    monkeypatch.setattr(listening, "peer_uid", lambda sock: os.getuid() + 1)
    assert ended(server.stranger())
    monkeypatch.undo()
    assert server.works()


# --- those who know the token --------------------------------------------------------------------


def member(server, number=3, lender=None):
    """A raw connection that has passed the handshake."""
    me = handshake.Identity(number, TOKEN, -1 if lender is None else lender.fd)
    sock, who = handshake.call_on(server.endpoint.address, me, 1, 5.0)
    if who.fd >= 0:
        os.close(who.fd)
    return sock


def packet(kind=1, flags=0, head=0, call=0, payload=0, arrays=0, body=0, at=0, pat=0, rest=b""):
    fields = (kind, 0, flags, head, call, payload, arrays, body, at, pat)
    return frames._HEAD.pack(*fields) + rest


HUGE = 1 << 62
BAD = [
    b"\x01",
    b"\x02pieces of nothing",
    b"\x07" * 100,
    packet(kind=9),
    packet(flags=255),
    packet(payload=5),
    packet(payload=HUGE, body=HUGE),
    packet(head=0xFFFFFFFF, body=0xFFFFFFFF),
    packet(arrays=0xFFFFFFFF),
    packet(arrays=1, body=8, rest=bytes(8) + b"more"),
    packet(arrays=1, body=8, rest=b"\xff" * 8),
    packet(arrays=1, body=16, rest=struct.pack("<BBBxIQ", 1, 1, 0, 0, HUGE)),
    packet(arrays=1, body=24, rest=struct.pack("<BBBxIQQ", 12, 2, 0, 0, HUGE, 0)),
    packet(arrays=1, body=24, rest=struct.pack("<BBBxIQQ", 1, 1, 1, 0, HUGE, frames.STREAMED)),
    packet(arrays=1, body=24, rest=struct.pack("<BBBxIQQ", 1, 1, 1, 0, 64, 64)),
    packet(flags=4, payload=100, pat=64),
    packet(flags=4, payload=HUGE, pat=frames.STREAMED),
    packet(flags=2, body=HUGE, at=frames.STREAMED),
    packet(flags=2, body=100, at=1 << 40),
]


def test_members_that_send_nonsense_are_cut_off_and_named(server):
    for i, said in enumerate(BAD):
        sock = member(server, 100 + i)
        sock.send(said)
        with sock:
            assert sock.recv(1000) == b"", i
        context.wait_until(lambda i=i: 100 + i in server.lost, lambda: "its end", 50)
        assert "sent what no worker sends" in str(server.lost[100 + i]) or "at most" in str(
            server.lost[100 + i]
        )
    assert server.got == [] and server.works()


def test_a_member_that_ends_amid_a_message_leaves_nothing_of_it(server):
    sock = member(server)
    sock.send(packet(flags=4, payload=200_000, pat=frames.STREAMED))
    sock.send(b"\x02" + bytes(60_000))
    sock.close()
    context.wait_until(lambda: 3 in server.lost, lambda: "its end", 50)
    assert server.got == []


def test_a_part_that_no_memory_is_there_for_ends_the_connection(server, monkeypatch):
    def none(*args):
        raise MemoryError("none left")

    sock = member(server)
    monkeypatch.setattr(frames.np, "empty", none)
    sock.send(packet(flags=4, payload=200_000, pat=frames.STREAMED))
    with sock:
        assert sock.recv(1000) == b""
    monkeypatch.undo()
    context.wait_until(lambda: 3 in server.lost, lambda: "its end", 50)
    assert "none left" in str(server.lost[3]) and server.works()


def test_memory_that_was_not_lent_is_not_read(server):
    """Where a block is not marked as lent, beyond the end, not aligned, or lent once and told
    twice."""
    lender = Lender(64 << 20)
    to = type("To", (), {"gone": False})()
    part = np.ones(50_000, np.uint8)
    for i, (at, nbytes, times) in enumerate(
        [(64, 50_000, 1), (1 << 20, 50_000, 1), (65, 50_000, 1), ((64 << 20) - 64, 50_000, 1),
         (0, 50_000, 1), (None, 1 << 40, 1), (None, 50_000, 2)]
    ):  # fmt: skip
        place = lender.lend(part, to) if at is None else at
        sock = member(server, 200 + i, lender)
        said = packet(flags=4, payload=nbytes, pat=place)
        for _ in range(times):
            sock.send(said)
        with sock:
            assert sock.recv(1000) == b""
        context.wait_until(lambda i=i: 200 + i in server.lost, lambda: "its end", 50)
        assert len(server.got) == times - 1
    lender.close()


def test_damaged_packets_raise_and_never_more(server):
    """Bytes of good packets changed at random: a message, or an error of ours."""
    rng = random.Random(0)
    lender = Lender(0)
    messages = [
        Message(1, 5, False, b"head", b"payload"),
        Message(1, 5, True, b"", b"x" * 500, [np.arange(6.0).reshape(2, 3), np.zeros(0)]),
        Message(2, 0, False, b"h", b"", [np.zeros(30_000)]),
    ]
    good = [frames.encode(m, lambda part: frames.STREAMED)[0] for m in messages]
    assert lender.fd == -1
    limits = Limits(message_bytes=1 << 30, payload_bytes=1 << 20)
    outcomes = {"message": 0, "error": 0}
    for _ in range(2500):
        said = bytearray(rng.choice(good))
        for _ in range(rng.randint(1, 4)):
            said[rng.randrange(min(len(said), 100))] = rng.choice([0, 1, 255, rng.randrange(256)])
        if rng.random() < 0.2:
            del said[rng.randrange(len(said)) :]
        try:
            frames.decode(memoryview(said), _no_memory, limits, limits.small())
            outcomes["message"] += 1
        except CommError:
            outcomes["error"] += 1
    assert min(outcomes.values()) > 200


def _no_memory(at, nbytes):
    raise frames.Garbage("not lent")


def test_a_name_disappears_with_its_endpoint():
    endpoint = LocalEndpoint(1, TOKEN)
    name = handshake._name(endpoint.address)[1:]

    def listed():
        with open("/proc/net/unix") as file:
            return name in file.read()

    assert listed()
    endpoint.serve(lambda *message: None, lambda *lost: None)
    endpoint.close()
    assert not listed()


def test_all_who_meet_through_a_store_get_one_token():
    store = HashStore()
    token = shared_token(store, "rpc")
    assert len(token) == 32 and shared_token(store, "rpc") == token
    assert shared_token(store, "again") != token
