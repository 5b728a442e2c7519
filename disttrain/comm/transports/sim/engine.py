"""How simulated ranks meet: they have met already (see ``selection``).

In a simulated cluster arrays go over its fabric. Without one they move through the shared-memory
transport, on the simulation's segment; what is simulated then is the waiting.
"""

from __future__ import annotations

from .... import context
from ...calls.transport import Transport
from ...meeting.meeting import Meeting
from ..shm import engine as shm_engine
from .fabric import fabric
from .scheduler import SimWaiter
from .transport import connect as connect_to_fabric

DEVICES = ("cpu",)


def missing() -> str | None:
    if isinstance(context.current().waiter, SimWaiter):
        return None
    return (
        "this process is no simulated rank; run the program with dtrun --simulate N, or a function "
        "with distributed.simulate()"
    )


def connect(meeting: Meeting) -> Transport:
    """Over the fabric, else as for ranks that share memory."""
    if fabric() is None:
        return shm_engine.connect(meeting)
    at = meeting.at if meeting.ranks is None else f"{meeting.at} {list(meeting.ranks)}"
    return connect_to_fabric(meeting.rank, meeting.size, meeting.timeout, at)
