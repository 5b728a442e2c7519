"""A simulated rank ends, and a process takes its place."""

from __future__ import annotations

from disttrain import context
from disttrain.comm.job.segment import JOB_SLOT
from disttrain.comm.meeting import survivors
from disttrain.comm.transports.shm.hub import HUBS


def start_anew(number: int) -> None:
    """What the launcher and a new process do in the place of rank ``number``."""
    me = context.current()
    job = survivors.as_view(me.slots[JOB_SLOT]).base
    job.publish_failure(number, "it was killed")
    me.waiter.scheduler.failed = True  # others look around while they wait
    me.waiter.scheduler.moved()
    for hub in tuple(me.slots[HUBS]):
        hub.disown()
    me.waiter.interrupts.clear()
    me.at_end.clear()
    me.slots.clear()
    me.slots[JOB_SLOT] = job
    job.kept.pop(number, None)
    job.slot(number).turn += 1
    me.rank, me.world_size = number, job.num_ranks
