"""Which transport carries the messages of a worker. The one place that knows more than one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from ... import context
from ...comm.transports.sim.scheduler import SimWaiter
from ..messages import mixed
from ..messages.contract.endpoint import Endpoint
from ..messages.contract.message import Limits
from ..messages.simulated import SimulatedEndpoint

OPENER = "rpc.opener"  # the slot of a rank whose endpoints are opened by that: ``opener(make)``


@dataclass(frozen=True)
class Ways:
    """What a worker may say about how messages travel (see ``mixed.open_endpoint``)."""

    transports: Sequence[str] | None = None
    host: str | None = None
    tls: bool = True
    data_tls: bool | None = None
    message_bytes: int | None = None


def open_endpoint(
    me: int, token: bytes, ways: Ways | None = None, meeting_host: str | None = None
) -> Endpoint:
    """The endpoint of worker ``me``, whose peers know ``token``, too. Simulated workers have one
    way only. ``meeting_host``: where workers of several hosts meet; None: all are on this one."""
    make = partial(_opened, me, token, Ways() if ways is None else ways, meeting_host)
    opener = context.current().slots.get(OPENER)
    found: Endpoint = make() if opener is None else opener(make)
    return found


def _opened(me: int, token: bytes, ways: Ways, meeting_host: str | None) -> Endpoint:
    limits = None if ways.message_bytes is None else Limits(message_bytes=ways.message_bytes)
    if isinstance(context.current().waiter, SimWaiter):
        return SimulatedEndpoint(me, token, limits)
    return mixed.open_endpoint(
        me,
        token,
        ways.transports,
        host=ways.host,
        meeting_host=meeting_host,
        tls=ways.tls,
        data_tls=ways.data_tls,
        limits=limits,
    )
