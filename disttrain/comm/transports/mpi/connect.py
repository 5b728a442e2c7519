"""How the transport of a communicator comes to be. Knows MPI and transports; no backends."""

from __future__ import annotations

import secrets
from typing import Any

from ....context import DEFAULT_TIMEOUT
from .arrival import Group
from .rounds import RADIX
from .station import Station
from .transport import MpiTransport


def connect(
    station: Station,
    comm: Any = None,
    name: str = "world",
    timeout: float = DEFAULT_TIMEOUT,
    epoch: int = 0,
    fixed_order: bool = True,
    radix: int = RADIX,
) -> MpiTransport:
    """The transport of all ranks of ``comm`` (None: of the job). They call it together, and may do
    so again and again: each group has a communicator of its own."""
    own = (station.world if comm is None else comm).Dup()
    data = bytearray(secrets.token_bytes(8))
    own.Bcast([data, station.MPI.BYTE], 0)
    group = Group(station, own, data.hex(), name)
    return MpiTransport(group, timeout, epoch, fixed_order, True, radix)
