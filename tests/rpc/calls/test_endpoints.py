"""Which transport a worker's messages take, by what it says and where it runs."""

from __future__ import annotations

import pytest

from disttrain import context
from disttrain.comm.transports.sim.scheduler import Scheduler, SimWaiter
from disttrain.rpc.calls import endpoints
from disttrain.rpc.calls.endpoints import Ways, open_endpoint
from disttrain.rpc.messages.simulated import SimulatedEndpoint

pytestmark = pytest.mark.simulated


@pytest.fixture
def opened(monkeypatch):
    """What ``mixed.open_endpoint`` was given."""
    seen = []
    monkeypatch.setattr(
        endpoints.mixed, "open_endpoint", lambda *args, **more: seen.append((args, more))
    )
    return seen


def test_what_a_worker_says_goes_on_as_it_is(opened):
    ways = Ways(["grpc"], "10.0.0.1", False, True, 5000)
    open_endpoint(3, b"token", ways, "head")
    ((args, more),) = opened
    assert args == (3, b"token", ["grpc"])
    assert more.pop("limits").message_bytes == 5000
    assert more == {"host": "10.0.0.1", "meeting_host": "head", "tls": False, "data_tls": True}


def test_nothing_said_is_the_usual_way(opened):
    open_endpoint(0, b"token")
    ((args, more),) = opened
    assert args == (0, b"token", None) and more["limits"] is None and more["tls"]
    assert more["host"] is None and more["meeting_host"] is None


def test_simulated_workers_have_one_way(opened):
    waiter = object.__new__(SimWaiter)
    waiter.scheduler = Scheduler(0)
    with context.attach(context.Rank(waiter=waiter)):
        made = open_endpoint(2, b"token", Ways(["grpc"], message_bytes=77))
    assert isinstance(made, SimulatedEndpoint) and not opened
    assert made.me == 2 and made.limits.message_bytes == 77
