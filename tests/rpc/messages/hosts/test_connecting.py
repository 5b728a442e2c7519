"""Who is not there is given up soon; who is there and busy is waited for."""

from __future__ import annotations

import socket
import time

import pytest
from rpc.messages.nodes import TOKEN

from disttrain.errors import PeerFailed
from disttrain.rpc.messages.contract.message import Limits
from disttrain.rpc.messages.hosts.connecting import Caller
from disttrain.rpc.messages.hosts.endpoint import RemoteEndpoint

SOON = Limits(handshake_seconds=0.2)


@pytest.fixture(params=[True, False], ids=["tls", "plain"])
def tls(request):
    return request.param


@pytest.fixture
def tries(monkeypatch):
    """The lanes for which a stream was begun."""
    made, begin = [], Caller._try

    def counting(self, peer, lane):
        made.append(lane)
        return begin(self, peer, lane)

    monkeypatch.setattr(Caller, "_try", counting)
    return made


def test_a_process_that_is_stopped_is_asked_once(tls, tries):
    """Its kernel accepts connections, and nobody says anything."""
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        RemoteEndpoint(0, TOKEN, SOON, tls=tls) as endpoint,
    ):
        scheme = "grpcs" if tls else "grpc"
        with pytest.raises(PeerFailed, match="did not answer"):
            endpoint.connect(1, f"{scheme}://127.0.0.1:{silent.getsockname()[1]}")
    assert tries == [0]


def test_a_process_that_is_busy_is_waited_for(tls, tries, monkeypatch):
    with RemoteEndpoint(0, TOKEN, SOON, tls=tls) as asks, RemoteEndpoint(1, TOKEN, tls=tls) as busy:
        meet = busy._meet

        def later(call):
            time.sleep(2 * SOON.handshake_seconds)
            meet(call)

        monkeypatch.setattr(busy, "_meet", later)
        busy.serve(lambda *_: None, lambda *_: None)
        asks.connect(1, busy.address)
    assert tries == [0]
