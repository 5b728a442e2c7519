"""Connecting to what is no store of this job: the deadline holds, the error says what is there."""

from __future__ import annotations

import logging
import socket
import threading
from contextlib import closing

import pytest

from disttrain.comm.store import StoreServer, TCPStore, connecting
from disttrain.errors import StoreUnreached

TOKEN = bytes(range(32))


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def join(port: int, timeout: float, host: str = "127.0.0.1") -> None:
    TCPStore(host, port, token=TOKEN, timeout=timeout).close()


def test_a_listener_that_never_answers_is_named_at_the_deadline(listener, monkeypatch):
    tries = []
    made = connecting.hello.client_hello
    monkeypatch.setattr(
        connecting.hello, "client_hello", lambda *given: tries.append(0) or made(*given)
    )
    with pytest.raises(StoreUnreached, match="does not answer as a store does"):
        join(listener.getsockname()[1], 0.2)
    assert len(tries) == 1  # the deadline of the caller ended a try that may take longer


def test_a_port_that_says_nothing_back_is_left_in_time(monkeypatch):
    with socket.socket() as full:  # nobody accepts, and no more connections are held
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        with closing(socket.create_connection(address)), pytest.raises(StoreUnreached):
            join(address[1], 0.1)


def test_another_program_at_the_port_is_named_soon(listener):
    def answer():
        while True:
            peer, _ = listener.accept()
            with peer:
                if not peer.recv(64, socket.MSG_WAITALL):
                    return
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n" + bytes(100))

    thread = threading.Thread(target=answer)
    thread.start()
    with pytest.raises(StoreUnreached, match="another program answers there"):
        join(listener.getsockname()[1], 60)
    socket.create_connection(listener.getsockname()).close()
    thread.join(30)


def test_a_wrong_token_is_told_to_both_sides_soon(caplog):
    server = StoreServer(bytes(32))
    server.start()
    with closing(server), caplog.at_level(logging.WARNING, "disttrain.store"):
        with pytest.raises(StoreUnreached, match=r"this job's token\. Give every rank the same"):
            join(server.port, 60)
    assert "before it proved that it knows the job's token" in caplog.text


def test_a_name_that_is_not_known_is_named(monkeypatch):
    def unknown(host, port, **how):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(StoreUnreached, match=r"name 'nohost\.invalid' is not known"):
        join(29500, 0.1, "nohost.invalid")


def test_a_resolver_that_does_not_answer_keeps_nobody(monkeypatch):
    done = threading.Event()

    def slow(host, port, *, type, flags=0):
        if not flags:
            done.wait(60)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with pytest.raises(StoreUnreached, match="could not be looked up yet"):
        join(29500, 0.1, "nohost.invalid")
    assert not done.is_set()
    done.set()
