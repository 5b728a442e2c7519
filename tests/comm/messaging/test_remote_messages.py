"""Messages over gRPC do what every transport does, with TLS and without."""

from __future__ import annotations

import pytest
from comm.messaging.conformance import Conformance
from comm.messaging.nodes import Threads

from disttrain.comm.messaging.remote import RemoteEndpoint


def plain(me, token, limits=None):
    return RemoteEndpoint(me, token, limits, tls=False)


class TestRemote(Conformance):
    """With TLS."""

    @pytest.fixture
    def nodes(self):
        return Threads(RemoteEndpoint)


class TestRemoteWithoutTLS(Conformance):
    """Where whoever starts the workers has said so."""

    @pytest.fixture
    def nodes(self):
        return Threads(plain)
