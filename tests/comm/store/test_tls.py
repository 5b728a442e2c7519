"""A store within TLS: what is asked comes through, and nobody without a certificate of the job."""

from __future__ import annotations

import contextlib
import secrets
import socket
import ssl
import threading
import time
from contextlib import closing

import pytest

from disttrain.comm.sockets.store_tls import from_token
from disttrain.comm.store import TCPStore
from disttrain.comm.store.server import StoreServer
from disttrain.comm.store.table import Limits
from disttrain.errors import StoreRefused, StoreUnreached

TOKEN, OTHER = b"t" * 32, b"o" * 32


@pytest.fixture(scope="module")
def tls():
    return from_token(TOKEN, "job", True)


@pytest.fixture
def server(tls):
    limits = Limits(handshake_seconds=0.3, strangers=8)
    made = StoreServer(TOKEN, limits=limits, tls=tls)
    made.start()
    yield made
    made.close()


def connect(server, tls, **settings) -> TCPStore:
    settings = {"token": TOKEN, "timeout": 10, **settings}
    return TCPStore("127.0.0.1", server.port, tls=tls, **settings)


def test_requests_of_all_sizes_come_through_and_who_waits_is_woken(server, tls):
    with closing(connect(server, tls)) as a, closing(connect(server, tls)) as b:
        for size in (0, 1, 16383, 16384, 16385, 300_000, 1 << 20):
            value = secrets.token_bytes(size)
            a.set("k", value)
            assert b.get("k") == value
        got = []
        waits = threading.Thread(target=lambda: got.append(b.get("later")))
        waits.start()
        time.sleep(0.05)
        a.set("later", "x")
        waits.join(10)
        assert got == [b"x"]


def test_threads_of_one_client_do_not_disturb_each_other(server, tls):
    with closing(connect(server, tls)) as store:

        def work(me: int) -> None:
            for i in range(30):
                store.set(f"{me}", f"{i}" * 5000)
                assert store.get(f"{me}") == (f"{i}" * 5000).encode()

        threads = [threading.Thread(target=work, args=(me,)) for me in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert all(store.check([str(me)]) for me in range(4))


def test_a_side_without_tls_is_refused_soon_and_told_what_to_do(server, tls):
    with pytest.raises(StoreRefused, match=r"asks for TLS.*tls=1"):
        connect(server, None)
    plain = StoreServer(TOKEN)
    plain.start()
    with closing(plain), pytest.raises(StoreRefused, match=r"hangs up when it begins.*tls=1"):
        connect(plain, tls)


def test_certificates_of_another_token_are_refused_by_both(server):
    with pytest.raises(StoreRefused, match="token file"):
        connect(server, from_token(OTHER, "job", False))
    with pytest.raises(StoreRefused, match="token file"):  # another job of the same token
        connect(server, from_token(TOKEN, "other job", False))
    trusts = from_token(TOKEN, "job", False)
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts the server, and shows nothing
    bare.check_hostname, bare.verify_mode = False, ssl.CERT_NONE
    nobody = type(trusts)(None, bare, trusts.name)
    with pytest.raises((StoreRefused, StoreUnreached)):
        connect(server, nobody, timeout=3)


def test_the_token_is_to_be_proved_within_it_too(server, tls):
    with pytest.raises(StoreRefused, match="token"):
        connect(server, tls, token=OTHER)


def test_older_versions_are_not_spoken(server, tls):
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_connection(("127.0.0.1", server.port), 5) as raw, pytest.raises(OSError):
        old.wrap_socket(raw)


HELLO = bytes.fromhex("16030100050100000100")


@pytest.mark.parametrize(
    "said",
    [b"", b"\x16", b"\x16\x03\x01\xff\xff", HELLO, b"GET / HTTP/1.1\r\n\r\n", b"\0" * 40_000],
)
def test_who_says_nothing_or_nonsense_is_disconnected_and_holds_nobody_up(server, tls, said):
    with socket.create_connection(("127.0.0.1", server.port), 5) as raw:
        raw.settimeout(5)
        with contextlib.suppress(OSError):
            raw.sendall(said)
        with closing(connect(server, tls)) as store:
            store.set("a", "b")
        with contextlib.suppress(ConnectionResetError):
            while raw.recv(4096):
                continue


def test_one_byte_at_a_time_is_too_slow_for_a_handshake(server):
    client = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    shakes = context.wrap_bio(ssl.MemoryBIO(), client)
    with contextlib.suppress(ssl.SSLWantReadError):
        shakes.do_handshake()
    with socket.create_connection(("127.0.0.1", server.port), 5) as raw:
        raw.settimeout(0.02)
        assert any(hung_up(raw, bytes([byte])) for byte in client.read()[:-1])


def hung_up(raw: socket.socket, byte: bytes) -> bool:
    try:
        raw.send(byte)
        return raw.recv(10) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_a_connection_that_breaks_off_is_a_lost_store(tls):
    server = StoreServer(TOKEN, tls=tls)
    server.start()
    with closing(connect(server, tls, timeout=2)) as store:
        store.set("a", "b")
        server.close()
        with pytest.raises(Exception, match="store"):
            store.get("a")
