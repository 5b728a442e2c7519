"""The listener of a store: strangers, floods, proofs."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import closing

import pytest

from disttrain.comm.store import (
    Limits,
    StoreServer,
    TCPStore,
    hello,
)
from disttrain.comm.store.table import encode
from disttrain.errors import StoreError, WaitTimeout

TOKEN = bytes(range(32))


@pytest.fixture
def server():
    made = StoreServer(TOKEN, epoch=3, limits=Limits(handshake_seconds=0.2, strangers=8))
    made.start()
    yield made
    made.close()


def connect(server, **settings) -> TCPStore:
    settings = {"token": TOKEN, "epoch": 3, "timeout": 5, **settings}
    return TCPStore("127.0.0.1", server.port, **settings)


def closed(sock: socket.socket) -> bool:
    """Did the other side hang up without a word?"""
    sock.settimeout(5)
    try:
        return sock.recv(100) == b""
    except ConnectionResetError:
        return True


def raw(server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port))


def test_token_epoch_and_job_must_fit(server):
    with closing(connect(server)) as store:
        store.set("a", "1")
    for wrong in ({"token": bytes(32)}, {"epoch": 2}, {"job_id": "another"}):
        with pytest.raises((WaitTimeout, StoreError)):
            connect(server, timeout=0.05, **wrong)
    with closing(connect(server)) as store:
        assert store.get("a") == b"1"
    with closing(connect(server, epoch=0)) as store:  # made by a program for itself
        assert store.get("a") == b"1"


def test_it_listens_on_loopback_only(server):
    assert server.host == "127.0.0.1"


def test_a_new_epoch_forgets_the_old_one():
    server = StoreServer(TOKEN, epoch=1)
    server.start()
    with closing(connect(server, epoch=1)) as old:
        old.set("a", "1")
        server.close()
        with pytest.raises(StoreError):
            old.get("a", 5)
    server = StoreServer(TOKEN, epoch=1)
    stop = threading.Event()
    thread = threading.Thread(target=lambda: [server.poll(0.005) for _ in iter(stop.is_set, True)])
    thread.start()
    with closing(connect(server, epoch=1)) as old:
        old.set("a", "1")
    stop.set()
    thread.join()
    server.reset(2)
    assert server._table.entries == {}
    server.close()


GARBAGE = [
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + b"x" * 64,
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    b"SSH-2.0-OpenSSH_9.6\r\n" + b"y" * 64,
    bytes(64),
    b"\xff" * 64,
    b"\x80\x04\x95" + b"cos\nsystem\n(S'true'\ntR." * 4,
]


@pytest.mark.parametrize("garbage", GARBAGE, ids=["http", "tls", "ssh", "zeros", "ones", "pickle"])
def test_strangers_are_cut_off_without_a_reply(server, garbage):
    with raw(server) as s:
        s.sendall(garbage)
        assert closed(s)
    with closing(connect(server)) as store:
        assert store.num_keys() == 1  # that of the store itself


def test_silence_and_dripping_bytes_end_with_the_handshake_time(server):
    with raw(server) as silent, raw(server) as dripping:
        dripping.sendall(b"d")
        assert closed(silent) and closed(dripping)


def test_a_flood_of_strangers_does_not_keep_friends_out(server):
    flood = [raw(server) for _ in range(40)]
    with closing(connect(server)) as store:
        store.set("a", "1")
        assert store.get("a") == b"1"
    assert len(server._strangers) <= 8
    for s in flood:
        s.close()


def test_a_replayed_handshake_proves_nothing(server):
    mine = hello.client_hello(hello.job_hash(""), 3)
    key = hello.derive_key(TOKEN, "store")
    with raw(server) as s:
        s.sendall(mine)
        answer = s.recv(64, socket.MSG_WAITALL)
        proof = hello.client_proof(key, mine, answer)
        s.sendall(proof + struct.pack("<I", 5) + encode(7, [])[:5])
        assert s.recv(4, socket.MSG_WAITALL)
    with raw(server) as s:
        s.sendall(mine)
        s.recv(64, socket.MSG_WAITALL)
        s.sendall(proof)
        assert closed(s)


def test_the_servers_own_proof_reflected_proves_nothing(server):
    with raw(server) as s:
        s.sendall(hello.client_hello(hello.job_hash(""), 3))
        answer = s.recv(64, socket.MSG_WAITALL)
        s.sendall(answer[24:56])
        assert closed(s)


def test_announced_gigabytes_and_malformed_requests_end_the_connection(server):
    for frame in (struct.pack("<I", 1 << 31), struct.pack("<I", 3) + b"abc"):
        with closing(connect(server)) as store:
            store._idle[-1][0].send(frame)
            with pytest.raises(StoreError, match="connection broke"):
                store.get("a", 5)
    with closing(connect(server)) as store:
        assert store.num_keys() == 1  # that of the store itself


@pytest.mark.parametrize("size", [2 << 20, 5 << 20, 40 << 20, 100 << 20])
def test_a_value_over_the_cap_is_refused_with_its_text_and_the_store_goes_on(server, size):
    with closing(connect(server)) as store:
        with pytest.raises(StoreError, match=r"value_bytes|request_bytes"):
            store.set("large", b"x" * size)
        store.set("small", "y")
        assert store.get("small") == b"y" and not store.check(["large"])
