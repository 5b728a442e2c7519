"""Four devices that are not there, for the tests of NCCL's transport."""

from __future__ import annotations

import pytest
from standins.device_double.double import DoublePlatform
from standins.nccl.binding import StandIn

from disttrain.backends.device import platform as devices


@pytest.fixture
def four():
    """A double of four devices."""
    made = DoublePlatform(4)
    made.binding = StandIn(made)
    before = devices.offer("cuda", lambda: made)
    yield devices.platform("cuda")
    devices.offer("cuda", *before)
