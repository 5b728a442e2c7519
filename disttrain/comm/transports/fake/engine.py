"""How a rank without peers meets them: not at all (see ``selection``)."""

from __future__ import annotations

from ...meeting.meeting import Meeting
from .transport import FakeTransport

DEVICES = ("cpu", "cuda")


def missing() -> str | None:
    """It needs nothing."""
    return None


def connect(meeting: Meeting) -> FakeTransport:
    """At once."""
    return FakeTransport(meeting.rank, meeting.size, timeout=meeting.timeout)
