"""How ranks that are to meet come to share memory (see ``selection``)."""

from __future__ import annotations

from ...job.segment import Segment
from ...meeting import survivors
from ...meeting.meeting import Meeting
from . import transport
from .transport import ShmTransport

DEVICES = ("cpu",)


def missing() -> str | None:
    """Every machine that this project runs on has shared memory."""
    return None


def connect(meeting: Meeting) -> ShmTransport:
    """Over the job's segment (where others may be at work already), or over one that rank 0 makes
    and the others find by the store."""
    rank, size, timeout = meeting.rank, meeting.size, meeting.timeout
    job = meeting.taken_over()
    if job is not None:
        return join(job, rank, timeout)
    if meeting.on_segment():
        return transport.connect(meeting.segment, rank, size, meeting.epoch, timeout)
    if size == 1:
        return connect_alone(timeout)
    return transport.connect_by_store(meeting.store(), rank, size, timeout=timeout)


def join(segment: Segment, rank: int, timeout: float) -> ShmTransport:
    """The transport of the ranks of ``segment`` that live, for a process which has taken the place
    of ``rank`` among them."""
    view = survivors.join(segment, rank, timeout)
    me = view.members.index(rank)
    made = transport.connect(view, me, view.num_ranks, segment.epoch, timeout)
    made.job = view
    return made


def connect_alone(timeout: float) -> ShmTransport:
    """The transport of a world of one rank."""
    made = transport.connect(Segment.create(1), 0, 1, 1, timeout)
    made.hub.owns_segment = True
    return made
