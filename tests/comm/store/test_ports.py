"""Listening at a port; a port that is taken is told with the process that has it."""

import os
import socket

import pytest

from disttrain.comm.store import ports
from disttrain.errors import StoreError


def test_any_free_port():
    listener = ports.listen("127.0.0.1", 0)
    with listener, socket.create_connection(listener.getsockname(), timeout=10):
        assert not listener.getblocking()
        assert listener.getsockname()[1] > 0


def test_a_taken_port_names_its_holder():
    with ports.listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        assert ports.holder(port).startswith(f"process {os.getpid()} (")
        with pytest.raises(ports.PortTaken, match=rf"127.0.0.1:{port}: .*process {os.getpid()} "):
            ports.listen("127.0.0.1", port)


def test_a_port_that_nobody_has():
    with ports.listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
    assert "cannot see" in ports.holder(port)


def test_an_address_of_another_machine():
    with pytest.raises(StoreError, match=r"192.0.2.1:0: .*an address of this machine") as caught:
        ports.listen("192.0.2.1", 0)  # of a range that is for documents
    assert not isinstance(caught.value, ports.PortTaken)


def test_an_unknown_name():
    with pytest.raises(StoreError, match=r"'no-such-host.invalid' is not known.*MASTER_ADDR"):
        ports.known("no-such-host.invalid", 29500)


def test_what_is_of_this_machine():
    assert ports.is_of_this_machine(*ports.known("127.0.0.1", 1))
    assert not ports.is_of_this_machine(*ports.known("192.0.2.1", 1))


@pytest.mark.parametrize(
    ("host", "answer"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("::1%lo", True),
     ("localhost", True), ("10.0.0.1", False), ("localhost.example", False), ("", False)],
)  # fmt: skip
def test_loopback(host, answer):
    assert ports.is_loopback(host) is answer


def test_stopped_also_for_who_shares_the_socket():
    listener = ports.listen("127.0.0.1", 0)
    address, other = listener.getsockname(), listener.dup()
    with other:
        ports.stop(listener)
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(address, timeout=10)
    ports.stop(listener)  # closed already
