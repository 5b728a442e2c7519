"""Messages over Unix sockets and shared memory do what every transport does."""

from __future__ import annotations

import pytest
from comm.messaging.conformance import Conformance
from comm.messaging.nodes import Threads

from disttrain.comm.messaging.local import LocalEndpoint


@pytest.fixture
def nodes():
    return Threads(LocalEndpoint)


class TestLocal(Conformance):
    """Nothing more than that."""
