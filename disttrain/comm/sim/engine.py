"""How simulated ranks meet: they have met already, on the simulation's segment (see ``engines``).

Data moves through the shared-memory transport; what is simulated is the waiting.
"""

from __future__ import annotations

from ... import context
from ..meeting import Meeting
from ..shm import ShmTransport
from ..shm import engine as shm_engine
from .scheduler import SimWaiter

DEVICES = ("cpu",)


def missing() -> str | None:
    if isinstance(context.current().waiter, SimWaiter):
        return None
    return "this process is no simulated rank; run the program with distributed.simulate()"


def connect(meeting: Meeting) -> ShmTransport:
    """As for ranks that share memory."""
    return shm_engine.connect(meeting)
