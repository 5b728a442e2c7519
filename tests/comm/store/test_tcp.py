"""A store behind a port: who waits for whom, what is named."""

from __future__ import annotations

import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from disttrain.comm.store import (
    TCPStore,
    hello,
)
from disttrain.errors import StoreError, WaitTimeout
from support.ranks import run_ranks

TOKEN = bytes(range(32))


def _meet(store):
    """Every rank says its name and hears the others'."""
    me = store.add("ranks", 1)
    store.set(f"name/{me}", str(me))
    return b"".join(store.multi_get([f"name/{i}" for i in (1, 2, 3)], 10))


def test_tcp_store_between_processes_without_a_launcher(tmp_path):
    """The token goes over a Unix socket of this user; the port is found out through a file."""

    def body(rank):
        if rank == 0:
            store = TCPStore("localhost", 0, 3, True, wait_for_workers=False)
            (tmp_path / "tmp").write_text(str(store.port))
            os.rename(tmp_path / "tmp", tmp_path / "port")
        else:
            while not (tmp_path / "port").exists():
                pass
            store = TCPStore("localhost", int((tmp_path / "port").read_text()), 3)
        said = _meet(store)
        store.add("left", 1)
        while rank == 0 and store.get("left") != b"3":
            pass
        store.close()
        return said

    assert run_ranks(3, body) == [b"123"] * 3


def test_the_master_waits_for_its_workers():
    with pytest.raises(WaitTimeout, match="1 of 2 ranks to join"):
        TCPStore("localhost", 0, 2, is_master=True, timeout=0.05)


def test_a_client_waits_for_a_late_master():
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
        with pytest.raises(WaitTimeout, match="no store of this user"):
            TCPStore("localhost", port, timeout=0.05)
        with ThreadPoolExecutor(1) as pool:
            late = pool.submit(TCPStore, "localhost", port, timeout=10)
            with closing(TCPStore("localhost", port, 2, is_master=True, timeout=10)) as master:
                with closing(late.result()) as client:
                    client.set("a", "1")
                assert master.get("a") == b"1"


def test_a_port_that_is_taken_is_named():
    with closing(TCPStore("localhost", 0, 1, is_master=True)) as store:
        with pytest.raises(StoreError, match=f"{store.port}: Address already in use"):
            TCPStore("localhost", store.port, 1, is_master=True)
    with pytest.raises(StoreError, match="port 70000"):
        TCPStore("localhost", 70000)


def test_a_store_that_has_ended_is_told():
    master = TCPStore("localhost", 0, 1, is_master=True)
    client = TCPStore("localhost", master.port)
    master.close()
    with pytest.raises(StoreError, match="has ended"):
        client.get("a", 5)
    client.close()


def closed(sock: socket.socket) -> bool:
    """Did the other side hang up without a word?"""
    sock.settimeout(5)
    try:
        return sock.recv(100) == b""
    except ConnectionResetError:
        return True


def test_a_client_refuses_a_server_that_knows_no_token():
    with socket.socket() as impostor:
        impostor.bind(("127.0.0.1", 0))
        impostor.listen()

        def answer():  # however often it tries: a busy machine may be late
            while True:
                peer, _ = impostor.accept()
                with peer:
                    mine = peer.recv(64, socket.MSG_WAITALL)
                    if not mine:
                        return
                    peer.sendall(hello.server_hello(bytes(32), mine))
                    assert closed(peer)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(WaitTimeout, match="does not know this job's token"):
            TCPStore("127.0.0.1", impostor.getsockname()[1], token=TOKEN, timeout=0.5)
        socket.create_connection(impostor.getsockname()).close()
        thread.join(30)
        assert not thread.is_alive()
