"""A default group over shared memory goes on without the ranks that have failed.

The ranks agree in the segment (``comm.survivors``) and connect again, on flags beyond all that
stand there, so that nothing of the groups before means anything. What these had in the arenas comes
back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from ...meeting import survivors
from .bootstrap import Watch
from .channel import last_word
from .deadlock import GONE
from .hub import Hub
from .mailbox import Mailbox

EXCLUDED = "it was excluded by shrink_group()"


def leave_and_agree(
    hub: Hub, mailbox: Mailbox, timeout: float, exclude: Collection[int] = ()
) -> survivors.View:
    """Leave all groups of ``hub``, and agree with the other ranks on who goes on. ``exclude``:
    without whom in any case."""
    exclude_ranks(hub.view, exclude)
    for rank in range(hub.size):  # so that whoever still waits hears why
        if hub.detector.has_vanished(rank):
            hub.segment.publish_failure(rank, GONE)
    hub.given_back += hub.open
    watch, owns = hub.give_watch(), hub.owns_segment
    hub.owns_segment = False  # the next hub closes it
    hub.close(met=False)
    agreed, view = None, hub.view
    try:
        agreed = survivors.agree(
            view, hub.rank, _last_word_of(view), certain_ends(view, watch), timeout
        )
    finally:
        hub.owns_segment = owns and agreed is None
        if watch is not None:
            watch.close()
    if not exclude:  # who lives may still write into what it was given
        mailbox.abandon()
        for group in hub.given_back:
            group.abandon()
    return agreed


def exclude_ranks(view: survivors.View, ranks: Collection[int]) -> None:
    """Count them for lost, and let them hear why."""
    for rank in ranks:
        slot = view.slot(rank)
        if not (slot.lost or slot.error[0]):
            slot.record_error(EXCLUDED, "")
        slot.lose()


def _last_word_of(view: survivors.View) -> Callable[[int], int]:
    base = view.base
    return lambda rank: last_word(base.buffer, base.comm_area(rank)[0])


def certain_ends(view: survivors.View, watch: Watch | None) -> Callable[[int], bool]:
    """Tells who of this host is lost. One that is given up since it was stopped must have ended: it
    may have been about to write into the memory of others."""
    if watch is None:  # the launcher ends it before it says so
        return lambda rank: view.slot(rank).lost

    def is_lost(rank: int) -> bool:
        watch()
        watch.end_stopped()
        if watch.has_ended(rank):
            view.slot(rank).lose()
            return True
        return view.slot(rank).lost and not watch.was_stopped(rank)

    return is_lost
